// database/sql, by arrow-go's driver of Flight SQL for a node, and by pgx for PostgreSQL.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"time"

	_ "github.com/apache/arrow-go/v18/arrow/flight/flightsql/driver"
	_ "github.com/jackc/pgx/v5/stdlib"
)

var pool *sql.DB

func check(name string, ask func() ([]string, error)) {
	fmt.Println("==", name)
	said, err := ask()
	if err != nil {
		fmt.Println("an error")
		return
	}
	for _, line := range said {
		fmt.Println(line)
	}
}

func shown(value any) string {
	switch value := value.(type) {
	case nil:
		return "NULL"
	case time.Time:
		return value.UTC().Format("2006-01-02T15:04:05.999999")
	case float32:
		return fmt.Sprint(float64(value))
	default:
		return fmt.Sprint(value)
	}
}

func rows(text string, arguments ...any) ([]string, error) {
	got, err := pool.Query(text, arguments...)
	if err != nil {
		return nil, err
	}
	defer got.Close()
	return read(got)
}

func read(got *sql.Rows) ([]string, error) {
	names, err := got.Columns()
	if err != nil {
		return nil, err
	}
	var lines []string
	for got.Next() {
		values := make([]any, len(names))
		places := make([]any, len(names))
		for i := range values {
			places[i] = &values[i]
		}
		if err := got.Scan(places...); err != nil {
			return nil, err
		}
		var line []string
		for _, value := range values {
			line = append(line, shown(value))
		}
		lines = append(lines, strings.Join(line, "|"))
	}
	return lines, got.Err()
}

func changed(text string, arguments ...any) ([]string, error) {
	result, err := pool.Exec(text, arguments...)
	if err != nil {
		return nil, err
	}
	count, err := result.RowsAffected()
	return []string{fmt.Sprint(count)}, err
}

func main() {
	var err error
	if port := os.Getenv("FLIGHT_PORT"); port != "" {
		pool, err = sql.Open("flightsql", "flightsql://127.0.0.1:"+port+"?timeout=20s")
	} else {
		pool, err = sql.Open("pgx", "")
	}
	if err != nil {
		panic(err)
	}
	ask := func(name, text string, arguments ...any) {
		check(name, func() ([]string, error) { return rows(text, arguments...) })
	}
	ask("rows", "select id, flag, small, big, f8, name, bytes from things order by id")
	ask("times", "select day, at, moment from things order by id")
	ask("single floats", "select f4 from things where id < 3 order by id")
	ask("aggregates", "select who, count(*), sum(minutes) from visits group by who order by who")
	ask("an integer as parameter", "select id from things where id = $1::bigint", 2)
	ask("a text as parameter", "select id from things where name = $1", "pen")
	ask("a double as parameter", "select id from things where f8 = $1", 2.25)
	ask("a boolean as parameter", "select id from things where flag = $1 order by id", true)
	ask("bytes as parameter", "select id from things where bytes = $1", []byte{0, 1, 255})
	ask("two parameters", "select id from things where id > $1::bigint and name <> $2 order by id", 1, "pen")
	ask("no rows", "select id from things where id = 99")
	check("names of columns", func() ([]string, error) {
		got, err := pool.Query("select * from things")
		if err != nil {
			return nil, err
		}
		defer got.Close()
		return got.Columns()
	})
	check("a statement ten times", func() ([]string, error) {
		statement, err := pool.Prepare("select id, name from things where id = $1::bigint")
		if err != nil {
			return nil, err
		}
		defer statement.Close()
		var all []string
		for i := range 10 {
			got, err := statement.Query(int64(1 + i%4))
			if err != nil {
				return nil, err
			}
			lines, err := read(got)
			got.Close()
			if err != nil {
				return nil, err
			}
			all = append(all, lines...)
		}
		return all, nil
	})
	check("inserted", func() ([]string, error) { return changed("insert into notes values (1, 'a'), (2, 'b')") })
	check("inserted by parameters", func() ([]string, error) { return changed("insert into notes values ($1, $2)", int64(3), "c") })
	check("updated", func() ([]string, error) { return changed("update notes set content = 'd' where line = 2") })
	check("deleted", func() ([]string, error) { return changed("delete from notes where line = 1") })
	ask("what was changed", "select line, content from notes order by line")
	for _, text := range []string{"select nothing", "select * from nothing", "selec 1", "select 1 / 0", "select 'x'::int"} {
		ask("an error: "+text, text)
	}
	ask("after an error", "select 1 + 1")
	check("a statement is given up", func() ([]string, error) {
		limit, done := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer done()
		_, err := pool.ExecContext(limit, "select count(*) from generate_series(1, 100000) a, generate_series(1, 100000) b")
		return []string{fmt.Sprint(err != nil)}, nil
	})
	ask("after that", "select 1")
}
