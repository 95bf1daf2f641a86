// pgjdbc: DatabaseMetaData, types of columns, parameters, cursors, COPY.

import java.math.BigDecimal;
import java.sql.*;
import java.util.*;

public class Checks {
    interface Ask { Object get() throws Exception; }

    static Connection connection;

    static void check(String name, Ask ask) {
        System.out.println("== " + name);
        try {
            Object said = ask.get();
            if (said instanceof List<?> rows) rows.forEach(System.out::println);
            else System.out.println(said);
        } catch (SQLException error) {
            System.out.println("error: " + error.getSQLState() + " " + error.getMessage().lines().findFirst().orElse(""));
        } catch (Exception error) {
            System.out.println("error: " + error);
        }
    }

    static List<String> rows(ResultSet set, String... columns) throws SQLException {
        List<String> rows = new ArrayList<>();
        while (set.next()) {
            List<String> row = new ArrayList<>();
            if (columns.length == 0)
                for (int i = 1; i <= set.getMetaData().getColumnCount(); i++) row.add(String.valueOf(set.getObject(i)));
            for (String column : columns) row.add(String.valueOf(set.getObject(column)));
            rows.add(String.join("|", row));
        }
        return rows;
    }

    static List<String> asked(String sql, Object... parameters) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            for (int i = 0; i < parameters.length; i++) statement.setObject(i + 1, parameters[i]);
            return rows(statement.executeQuery());
        }
    }

    public static void main(String[] arguments) throws Exception {
        String url = "jdbc:postgresql://127.0.0.1:" + System.getenv("PGPORT") + "/" + System.getenv("PGDATABASE");
        connection = DriverManager.getConnection(url, System.getenv("PGUSER"), "");
        DatabaseMetaData meta = connection.getMetaData();
        check("getSchemas", () -> rows(meta.getSchemas(), "TABLE_SCHEM").stream()
            .filter(name -> !name.startsWith("pg_toast") && !name.startsWith("pg_temp")).toList());
        check("getTables", () -> rows(meta.getTables(null, "public", "%", new String[] {"TABLE", "VIEW"}), "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE"));
        check("getTables of all schemas", () -> rows(meta.getTables(null, null, "%", new String[] {"TABLE"}), "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE", "REMARKS"));
        check("getTableTypes", () -> rows(meta.getTableTypes()));
        check("getColumns", () -> rows(meta.getColumns(null, "public", "things", "%"), "COLUMN_NAME", "DATA_TYPE", "TYPE_NAME", "COLUMN_SIZE",
            "DECIMAL_DIGITS", "NULLABLE", "REMARKS", "COLUMN_DEF", "ORDINAL_POSITION", "IS_NULLABLE", "IS_AUTOINCREMENT", "IS_GENERATEDCOLUMN"));
        check("getColumns of a view", () -> rows(meta.getColumns(null, null, "minutes", null), "COLUMN_NAME", "TYPE_NAME"));
        check("getPrimaryKeys", () -> rows(meta.getPrimaryKeys(null, "public", "things"), "COLUMN_NAME"));
        check("getIndexInfo", () -> rows(meta.getIndexInfo(null, "public", "things", false, false), "INDEX_NAME"));
        check("getImportedKeys", () -> rows(meta.getImportedKeys(null, "public", "things"), "FK_NAME"));
        check("getExportedKeys", () -> rows(meta.getExportedKeys(null, "public", "things"), "FK_NAME"));
        check("getBestRowIdentifier", () -> rows(meta.getBestRowIdentifier(null, "public", "things", DatabaseMetaData.bestRowSession, true), "COLUMN_NAME"));
        check("getVersionColumns", () -> rows(meta.getVersionColumns(null, "public", "things"), "COLUMN_NAME"));
        check("getTypeInfo has the types", () -> {
            Set<String> names = new TreeSet<>(rows(meta.getTypeInfo(), "TYPE_NAME"));
            names.retainAll(Set.of("bool", "bytea", "int2", "int4", "int8", "float4", "float8", "numeric", "text", "date", "time", "timestamp", "timestamptz", "interval"));
            return names;
        });
        check("getTablePrivileges", () -> rows(meta.getTablePrivileges(null, "public", "things"), "TABLE_NAME").stream().distinct().toList());
        check("getFunctions", () -> rows(meta.getFunctions(null, "public", "nothing"), "FUNCTION_NAME"));
        check("getProcedures", () -> rows(meta.getProcedures(null, "public", "nothing"), "PROCEDURE_NAME"));
        check("getSQLKeywords", () -> meta.getSQLKeywords().contains("analyze"));
        check("getMaxNameLength", meta::getMaxTableNameLength);
        check("getCatalogs", () -> rows(meta.getCatalogs()).contains(connection.getCatalog()));
        check("getClientInfoProperties", () -> rows(meta.getClientInfoProperties(), "NAME"));
        check("getSchema", connection::getSchema);
        check("isValid", () -> connection.isValid(5));
        check("rows", () -> asked("select id, flag, small, big, f4, f8, price, name, day, at from things order by id"));
        check("names and types of columns", () -> {
            try (Statement statement = connection.createStatement(); ResultSet set = statement.executeQuery("select * from things")) {
                ResultSetMetaData of = set.getMetaData();
                List<String> said = new ArrayList<>();
                for (int i = 1; i <= of.getColumnCount(); i++)
                    said.add(String.join("|", of.getColumnName(i), of.getColumnTypeName(i), of.getColumnClassName(i), of.getTableName(i), "" + of.getPrecision(i), "" + of.getScale(i), "" + of.isNullable(i), "" + of.isAutoIncrement(i)));
                return said;
            }
        });
        check("parameters", () -> asked("select id from things where id = ? or name = ? or price = ? or f8 = ? order by id", 1, "none", new BigDecimal("-3.99"), 2.25));
        check("a date as parameter", () -> asked("select id from things where day = ?", java.time.LocalDate.of(2024, 2, 29)));
        check("java.sql.Date as parameter", () -> asked("select id from things where day = ?", java.sql.Date.valueOf("2024-02-29")));
        check("a timestamp as parameter", () -> asked("select id from things where at = ?", java.time.LocalDateTime.of(2038, 1, 19, 3, 14, 7)));
        check("java.sql.Timestamp as parameter", () -> asked("select id from things where at = ?", Timestamp.valueOf("2038-01-19 03:14:07")));
        check("an instant as parameter", () -> asked("select id from things where moment = ?", java.time.OffsetDateTime.parse("2038-01-19T04:14:07+01:00")));
        check("an array as parameter", () -> asked("select id from things where id = any (?) order by id", connection.createArrayOf("int4", new Object[] {1, 4})));
        check("an array comes back", () -> asked("select array_agg(who order by who) from visits"));
        check("ten times, with a name and in binary", () -> {
            List<String> last = null;
            try (PreparedStatement statement = connection.prepareStatement("select id, big, f8, price, day, at, moment is null, name from things where id = ?")) {
                for (int i = 0; i < 10; i++) { statement.setInt(1, 1 + i % 4); last = rows(statement.executeQuery()); }
            }
            return last;
        });
        check("rows in parts", () -> {
            connection.setAutoCommit(false);
            try (Statement statement = connection.createStatement()) {
                statement.setFetchSize(2);
                return rows(statement.executeQuery("select id from things order by id"));
            } finally { connection.rollback(); connection.setAutoCommit(true); }
        });
        check("maxRows", () -> { try (Statement s = connection.createStatement()) { s.setMaxRows(2); return rows(s.executeQuery("select id from things order by id")); } });
        check("a batch", () -> {
            try (PreparedStatement statement = connection.prepareStatement("insert into notes values (?, ?)")) {
                for (int i = 30; i < 33; i++) { statement.setLong(1, i); statement.setString(2, "row " + i); statement.addBatch(); }
                return Arrays.toString(statement.executeBatch());
            }
        });
        check("a batch stored", () -> asked("select line, content from notes where line between 30 and 32 order by line"));
        check("a transaction that is rolled back", () -> {
            connection.setAutoCommit(false);
            try (Statement statement = connection.createStatement()) {
                statement.executeUpdate("insert into notes values (40, 'x')");
                Savepoint savepoint = connection.setSavepoint();
                connection.rollback(savepoint);
                connection.rollback();
            } finally { connection.setAutoCommit(true); }
            return asked("select count(*) from notes where line = 40");
        });
        check("read only", () -> { connection.setReadOnly(true); try { return asked("select count(*) from visits"); } finally { connection.setReadOnly(false); } });
        check("isolation", () -> { connection.setTransactionIsolation(Connection.TRANSACTION_REPEATABLE_READ); return connection.getTransactionIsolation(); });
        check("COPY", () -> {
            var copy = new org.postgresql.copy.CopyManager((org.postgresql.core.BaseConnection) connection);
            var out = new java.io.StringWriter();
            copy.copyOut("copy (select id, name from things order by id) to stdout", out);
            return List.of(out.toString().split("\n"));
        });
        check("COPY FROM", () -> new org.postgresql.copy.CopyManager((org.postgresql.core.BaseConnection) connection)
            .copyIn("copy notes from stdin (format csv)", new java.io.StringReader("50,\"a,b\"\n51,\n")));
        check("SQLSTATE", () -> asked("select 1 / (id - 1) from things where id = 1"));
        check("escapes", () -> asked("select {fn ucase(name)}, {d '2024-02-29'} from things where id = 1"));
        check("cancel by a time limit", () -> {
            try (Statement statement = connection.createStatement()) {
                statement.setQueryTimeout(30);
                return rows(statement.executeQuery("select count(*) from things"));
            }
        });
    }
}
