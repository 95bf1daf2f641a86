// pgx: types in binary, parameters, batches, COPY, a pool; and database/sql over it.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
)

var background = context.Background()

func check(name string, ask func() (any, error)) {
	fmt.Println("==", name)
	said, err := ask()
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused):
		fmt.Println("error:", refused.Code, refused.Message)
	case err != nil:
		fmt.Println("error:", err)
	default:
		if rows, is := said.([][]any); is {
			for _, row := range rows {
				fmt.Println(row...)
			}
			return
		}
		fmt.Println(said)
	}
}

func rows(connection *pgx.Conn, sql string, arguments ...any) (any, error) {
	got, err := connection.Query(background, sql, arguments...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(got, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
}

func main() {
	connection, err := pgx.Connect(background, "")
	if err != nil {
		panic(err)
	}
	ask := func(name, sql string, arguments ...any) {
		check(name, func() (any, error) { return rows(connection, sql, arguments...) })
	}
	ask("rows", "select id, flag, small, big, f4, f8, price::text, name, bytes, day, at from things order by id")
	ask("numeric", "select price from things order by id")
	ask("timestamptz", "select moment at time zone 'UTC' from things order by id")
	ask("integer as parameter", "select id from things where id = $1", 2)
	ask("text as parameter", "select id from things where name = $1", "pen")
	ask("double as parameter", "select id from things where f8 = $1", 2.25)
	ask("date as parameter", "select id from things where day = $1", time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC))
	ask("timestamp as parameter", "select id from things where at = $1", time.Date(2038, 1, 19, 3, 14, 7, 0, time.UTC))
	ask("timestamptz as parameter", "select id from things where moment = $1", time.Date(2038, 1, 19, 3, 14, 7, 0, time.UTC))
	ask("bytes as parameter", "select id from things where bytes = $1", []byte{0, 1, 255})
	ask("decimal as parameter", "select id from things where price = $1", "-3.99")
	ask("an array as parameter", "select id from things where id = any($1) order by id", []int32{1, 4})
	ask("texts in an array as parameter", "select id from things where name = any($1)", []string{"pen"})
	ask("an array comes back", "select array_agg(who order by who) from visits")
	ask("interval comes back", "select interval '1 month 2 days 03:04:05'")
	ask("json comes back", `select '{"a": 1}'::json`)
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		ask(fmt.Sprint("mode: ", mode), "select id, name from things where id < $1 order by id", mode, 3)
	}
	check("columns", func() (any, error) {
		statement, err := connection.Prepare(background, "", "select * from things where id = $1")
		if err != nil {
			return nil, err
		}
		var names [][]any
		for _, field := range statement.Fields {
			names = append(names, []any{field.Name, field.DataTypeOID, field.TypeModifier})
		}
		return names, nil
	})
	check("LoadType", func() (any, error) {
		loaded, err := connection.LoadType(background, "_int4")
		if err != nil {
			return nil, err
		}
		return loaded.Name, nil
	})
	check("a batch", func() (any, error) {
		batch := &pgx.Batch{}
		for n := 60; n < 63; n++ {
			batch.Queue("insert into notes values ($1, $2)", n, fmt.Sprint("row ", n))
		}
		batch.Queue("select 1")
		return nil, connection.SendBatch(background, batch).Close()
	})
	ask("a batch stored", "select line, content from notes where line between 60 and 62 order by line")
	check("CopyFrom", func() (any, error) {
		return connection.CopyFrom(background, pgx.Identifier{"notes"}, []string{"line", "content"}, pgx.CopyFromRows([][]any{{int64(70), "x"}, {int64(71), nil}}))
	})
	ask("CopyFrom stored", "select line, content from notes where line in (70, 71) order by line")
	check("a transaction that is rolled back", func() (any, error) {
		transaction, err := connection.BeginTx(background, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			return nil, err
		}
		if _, err := transaction.Exec(background, "insert into notes values (80, 'x')"); err != nil {
			return nil, err
		}
		if err := transaction.Rollback(background); err != nil {
			return nil, err
		}
		return rows(connection, "select count(*) from notes where line = 80")
	})
	ask("SQLSTATE", "select 1 / (id - 1) from things where id = 1")
	check("a pool", func() (any, error) {
		pool, err := pgxpool.New(background, "")
		if err != nil {
			return nil, err
		}
		defer pool.Close()
		var count int
		err = pool.QueryRow(background, "select count(*) from things").Scan(&count)
		return count, err
	})
	check("database/sql", func() (any, error) {
		database, err := sql.Open("pgx", "")
		if err != nil {
			return nil, err
		}
		defer database.Close()
		var name sql.NullString
		var day time.Time
		err = database.QueryRow("select name, day from things where id = $1", 1).Scan(&name, &day)
		return fmt.Sprint(name.String, " ", day.Format(time.DateOnly)), err
	})
	check("database/sql: columns", func() (any, error) {
		database, err := sql.Open("pgx", "")
		if err != nil {
			return nil, err
		}
		defer database.Close()
		got, err := database.Query("select id, price, name, day, moment from things")
		if err != nil {
			return nil, err
		}
		defer got.Close()
		types, err := got.ColumnTypes()
		if err != nil {
			return nil, err
		}
		var names [][]any
		for _, column := range types {
			names = append(names, []any{column.Name(), column.DatabaseTypeName(), column.ScanType()})
		}
		return names, nil
	})
}
