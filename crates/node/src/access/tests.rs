//! Tests of access control: parsing access files (tokens and limits of tenants), the error for each mistake in a file,
//! and checking tokens.

use super::*;

const FILE: &str = r#"
# Who may connect.
[tenant.ann]
weight = 2
pool_memory = "8GiB"
disk = "50GiB"
work_memory = "512 MiB"
programs = 4
programs_waiting = 0
result_bytes = 1000
connections = 32

[tenant."B ob"]

[[token]]
tenant = "ann"
name = "dashboards"
role = "read"
sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" # abc
until = 1970-01-02

[[token]]
tenant = "B ob"
role = "admin"
sha256 = "3608bca1e44ea6c4d268eb6db02260269892c0b42b86bbf1e77a6fa16c3c9282" # xyz
"#;

fn tenant(name: &str) -> TenantName {
    TenantName::new(name).unwrap()
}

#[test]
fn tokens_lead_to_tenants_and_rights() {
    let access = Access::parse(FILE).unwrap();
    let granted = access.admit(Some("abc"), 0).unwrap();
    assert_eq!((granted.tenant.as_str(), granted.right), ("ann", Right::Read));
    assert_eq!(granted.name.as_deref(), Some("dashboards"));
    let granted = access.admit(Some("xyz"), 0).unwrap();
    assert_eq!((granted.tenant.as_str(), granted.right), ("B ob", Right::Admin));
    for token in [None, Some(""), Some("ab"), Some("abcd"), Some("ABC")] {
        assert_eq!(access.admit(token, 0).unwrap_err().kind, ErrorKind::Denied, "{token:?}");
    }
    let everybody = Access::of_everybody().admit(Some("whatever"), 0).unwrap();
    assert_eq!((everybody.tenant, everybody.right), (TenantName::default(), Right::Admin));
    assert_eq!(Access::of_nobody().admit(Some(""), 0).unwrap_err().kind, ErrorKind::Denied);
}

#[test]
fn limits_are_those_of_the_tenant() {
    let access = Access::parse(FILE).unwrap();
    let expected = TenantLimits {
        weight: 2,
        pool_bytes_max: Some(8 << 30),
        disk_bytes_max: Some(50 << 30),
        work_bytes_max: Some(512 << 20),
        programs_max: NonZero::new(4),
        programs_waiting_max: 0,
        result_bytes_max: Some(1000),
        connections_max: NonZero::new(32),
    };
    assert_eq!(access.limits(&tenant("ann")), expected);
    assert_eq!(access.limits(&tenant("B ob")), TenantLimits::default());
    assert_eq!(access.limits(&tenant("nobody")), TenantLimits::default());
}

#[test]
fn a_token_ends_when_it_is_removed_changed_or_over() {
    let access = Access::parse(FILE).unwrap();
    let granted = access.admit(Some("abc"), 2 * 86_400 - 1).unwrap();
    assert_eq!(access.confirm(&granted, 2 * 86_400 - 1), Ok(()));
    for ended in [access.confirm(&granted, 2 * 86_400), access.admit(Some("abc"), 2 * 86_400).map(drop)] {
        let error = ended.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Denied);
        assert!(
            error.message.contains("\"dashboards\" is over") && error.message.contains("1970-01-02"),
            "{error}"
        );
    }
    let written = Access::parse(&FILE.replace("\"read\"", "\"write\"")).unwrap();
    assert_eq!(written.confirm(&granted, 0).unwrap_err().kind, ErrorKind::Unavailable);
    let removed = Access::of_nobody().confirm(&granted, 0).unwrap_err();
    assert_eq!(removed.kind, ErrorKind::Denied);
    assert!(removed.message.contains("removed"), "{removed}");
    // Access that was granted without a token stays valid as long as the node requires no token.
    let everybody = Access::of_everybody().admit(None, 0).unwrap();
    assert_eq!(Access::of_everybody().confirm(&everybody, 0), Ok(()));
    assert_eq!(access.confirm(&everybody, 0).unwrap_err().kind, ErrorKind::Denied);
}

#[test]
fn every_mistake_is_named_with_its_line_and_what_to_do() {
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let token =
        |more: &str| format!("[tenant.ann]\n\n[[token]]\ntenant = \"ann\"\nrole = \"read\"\n{more}\n");
    let whole = |more: &str| token(&format!("sha256 = \"{digest}\"\n{more}"));
    for (text, line, part) in [
        ("nonsense".to_string(), 1, ""),
        ("[tenant.ann]\nweigth = 2\n".into(), 2, "weight"),
        ("[tenant.ann]\nweight = 0\n".into(), 2, "nonzero"),
        ("[tenant.ann]\nweight = -1\n".into(), 2, ""),
        ("[tenant.ann]\npool_memory = \"8 potatoes\"\n".into(), 2, "write 512MiB"),
        ("[tenant.ann]\npool_memory = -1\n".into(), 2, "size"),
        ("[tenant.ann]\nwork_memory = true\n".into(), 2, "4GiB"),
        ("[tenant.ann]\nprograms = 0\n".into(), 2, "nonzero"),
        ("[tenant.ann]\n[tenant.ann]\n".into(), 2, "duplicate key"),
        ("[tenant.\"\"]\n".into(), 1, "may not be empty"),
        ("[tenants.ann]\n".into(), 1, "tenant"),
        ("[token]\ntenant = \"ann\"\n".into(), 1, "sequence"),
        (token(""), 3, "missing field `sha256`"),
        (token("sha256 = \"short\""), 6, "farpool token new"),
        (token("sha256 = 7"), 6, "string"),
        (whole("until = \"soon\""), 7, "datetime"),
        (whole("until = 2027-01-01T00:00:00"), 7, "write a day"),
        (whole("token = \"x\""), 7, "sha256"),
        (whole("").replace("\"read\"", "\"root\""), 5, "read, write and admin"),
        (whole("").replace("tenant = \"ann\"", "tenant = \"amn\""), 4, "[tenant.amn]"),
        (whole("").replace("tenant = \"ann\"", "tenant = \"a \\\"n\""), 4, "[tenant.\"a \\\"n\"]"),
        (whole("") + &whole("").replace("[tenant.ann]", ""), 13, "stands above already"),
    ] {
        let error = Access::parse(&text).unwrap_err();
        let (message, advice) = (error.message, error.advice.expect("what to do"));
        assert!(message.starts_with(&format!("line {line}: ")), "{text}\n{message}");
        assert!(format!("{message} {advice}").contains(part), "{text}\n{message}: {advice}");
    }
    for empty in ["", "# nobody\n", "[tenant.ann]\n"] {
        let access = Access::parse(empty).unwrap();
        assert!(
            access.is_of_nobody() && access.admit(Some("anns"), 0).is_err() && access.admit(None, 0).is_err()
        );
        assert!(access.check_not_empty().unwrap_err().message.contains("nobody could connect"));
    }
    let named = |digit: char| {
        let digest = digit.to_string().repeat(64);
        format!("[[token]]\ntenant = \"ann\"\nname = \"n\"\nrole = \"read\"\nsha256 = \"{digest}\"\n")
    };
    let error = Access::parse(&format!("[tenant.ann]\n{}{}", named('1'), named('2'))).unwrap_err();
    assert!(error.message.starts_with("line 9: ") && error.message.contains("\"n\""), "{error}");
}

#[test]
fn a_token_that_stands_in_the_wrong_place_is_not_repeated() {
    let secret = new_token([0xab; 32]);
    for text in [
        format!("[tenant.ann]\nweight = \"{secret}\"\n"),
        format!("[tenant.ann]\npool_memory = \"{secret}\"\n"),
        format!(
            "[tenant.ann]\n[[token]]\ntenant = \"{secret}\"\nrole = \"read\"\nsha256 = \"{}\"",
            "0".repeat(64)
        ),
        format!("[tenant.ann]\n[[token]]\ntenant = \"ann\"\nrole = \"{secret}\"\n"),
        format!("[tenant.ann]\n[[token]]\ntenant = \"ann\"\nrole = \"read\"\nsha256 = \"{secret}\"\n"),
        format!("[tenant.ann]\n[[token]]\ntenant = \"ann\"\n{secret} = 1\n"),
        secret.clone(),
    ] {
        let error = format!("{:?}", Access::parse(&text).unwrap_err());
        assert!(!error.contains("abab"), "{error}");
    }
    let access = Access::of_nobody().with_token("s3cret", tenant("ann"), Right::Read);
    assert!(!format!("{access:?}").contains("s3cret"));
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let error = Access::read(&path("missing")).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
    assert!(error.message.contains("missing"), "{error}");
    std::fs::write(path("latin"), b"# a\n# \xe4\n").unwrap();
    let error = Access::read(&path("latin")).unwrap_err();
    assert!(error.message.contains("latin: line 2: this is not UTF-8"), "{error}");
    std::fs::write(path("large"), vec![b'#'; limits::ACCESS_FILE_BYTES_MAX + 1]).unwrap();
    assert_eq!(Access::read(&path("large")).unwrap_err().kind, ErrorKind::OverLimit);
    std::fs::write(path("wrong"), "[tenant.ann]\nx = 1\n").unwrap();
    assert!(Access::read(&path("wrong")).unwrap_err().message.contains("wrong: line 2: "));
}
