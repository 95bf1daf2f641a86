"""Prints checks in the form that `cargo xtask doors` compares: a line `== NAME`, then the result or the error."""


def check(name, ask):
    """Asks, prints what is said, and returns it; `None` after an error."""
    print(f"== {name}", flush=True)
    try:
        said = ask()
    except Exception as error:
        print(f"error: {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)
        return None
    for row in said if isinstance(said, list) else [said]:
        print(row, flush=True)
    return said
