// The JDBC driver of Flight SQL for a node, pgjdbc for PostgreSQL: rows, types of columns, parameters, metadata, errors.

import java.math.BigDecimal;
import java.sql.*;
import java.util.*;

public class FlightChecks {
    interface Ask { Object get() throws Exception; }

    static Connection connection;
    static boolean isFlight = System.getenv("FLIGHT_PORT") != null;

    static void check(String name, Ask ask) {
        System.out.println("== " + name);
        try {
            Object said = ask.get();
            if (said instanceof List<?> rows) rows.forEach(System.out::println);
            else System.out.println(said);
        } catch (SQLException error) {
            System.out.println("an error");
        } catch (Exception error) {
            System.out.println("error: " + error);
        }
    }

    static String shown(Object value) {
        if (value instanceof BigDecimal decimal) return decimal.stripTrailingZeros().toPlainString();
        if (value instanceof byte[] bytes) return Arrays.toString(bytes);
        if (value instanceof Float || value instanceof Double) return String.valueOf(((Number) value).doubleValue());
        return String.valueOf(value);
    }

    static List<String> rows(ResultSet set, String... columns) throws SQLException {
        List<String> rows = new ArrayList<>();
        try (set) {
            while (set.next()) {
                List<String> row = new ArrayList<>();
                if (columns.length == 0)
                    for (int i = 1; i <= set.getMetaData().getColumnCount(); i++) row.add(shown(set.getObject(i)));
                for (String column : columns) row.add(shown(set.getObject(column)));
                rows.add(String.join("|", row));
            }
        }
        return rows;
    }

    static List<String> asked(String sql, Object... parameters) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            for (int i = 0; i < parameters.length; i++) statement.setObject(i + 1, parameters[i]);
            return rows(statement.executeQuery());
        }
    }

    static List<String> sorted(List<String> rows) {
        List<String> copy = new ArrayList<>(rows);
        Collections.sort(copy);
        return copy;
    }

    public static void main(String[] arguments) throws Exception {
        TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
        connection = isFlight
            ? DriverManager.getConnection("jdbc:arrow-flight-sql://127.0.0.1:" + System.getenv("FLIGHT_PORT") + "/?useEncryption=false")
            : DriverManager.getConnection("jdbc:postgresql://127.0.0.1:" + System.getenv("PGPORT") + "/" + System.getenv("PGDATABASE"), System.getenv("PGUSER"), "");
        DatabaseMetaData meta = connection.getMetaData();
        check("rows", () -> asked("select id, flag, big, f8, price, name, day, at from things order by id"));
        check("getters", () -> {
            try (Statement statement = connection.createStatement(); ResultSet set = statement.executeQuery("select * from things order by id limit 1")) {
                set.next();
                return List.of(set.getInt("id"), set.getBoolean("flag"), set.getShort("small"), set.getLong("big"), set.getFloat("f4"), set.getDouble("f8"),
                    shown(set.getBigDecimal("price")), set.getString("name"), Arrays.toString(set.getBytes("bytes")), set.getDate("day"), set.getTimestamp("at"));
            }
        });
        check("wasNull", () -> {
            try (Statement statement = connection.createStatement(); ResultSet set = statement.executeQuery("select name from things where id = 3")) {
                set.next();
                return set.getString(1) + " " + set.wasNull();
            }
        });
        check("names of columns", () -> {
            try (Statement statement = connection.createStatement(); ResultSet set = statement.executeQuery("select * from things")) {
                List<String> names = new ArrayList<>();
                for (int i = 1; i <= set.getMetaData().getColumnCount(); i++) names.add(set.getMetaData().getColumnLabel(i));
                return names;
            }
        });
        check("types of columns", () -> {
            try (Statement statement = connection.createStatement(); ResultSet set = statement.executeQuery("select id, big, f8, price, name, day, at from things")) {
                List<String> types = new ArrayList<>();
                for (int i = 1; i <= set.getMetaData().getColumnCount(); i++) types.add(JDBCType.valueOf(set.getMetaData().getColumnType(i)).getName());
                return types;
            }
        });
        check("aggregates", () -> asked("select who, count(*), sum(minutes) from visits group by who order by who"));
        check("an integer as parameter", () -> asked("select id from things where id = ?", 2));
        check("a text as parameter", () -> asked("select id from things where name = ?", "pen"));
        check("a double as parameter", () -> asked("select id from things where f8 = ?", 2.25));
        check("a decimal as parameter", () -> asked("select id from things where price = ?", new BigDecimal("-3.99")));
        check("a boolean as parameter", () -> asked("select id from things where flag = ? order by id", true));
        check("a date as parameter", () -> asked("select id from things where day = ?", java.sql.Date.valueOf("2024-02-29")));
        check("a timestamp as parameter", () -> asked("select id from things where at = ?", Timestamp.valueOf("2038-01-19 03:14:07")));
        check("a time as parameter", () -> asked("select cast(cast(? as time) as text)", Time.valueOf("01:02:03")));
        check("a statement ten times", () -> {
            List<String> last = null;
            try (PreparedStatement statement = connection.prepareStatement("select id, name from things where id = ?")) {
                for (int i = 0; i < 10; i++) { statement.setInt(1, 1 + i % 4); last = rows(statement.executeQuery()); }
            }
            return last;
        });
        check("changed rows", () -> {
            try (Statement statement = connection.createStatement()) {
                return List.of(statement.executeUpdate("insert into notes values (1, 'a'), (2, 'b')"), statement.executeUpdate("update notes set content = 'c' where line = 2"),
                    statement.executeUpdate("delete from notes where line = 1"));
            }
        });
        check("a batch", () -> {
            try (PreparedStatement statement = connection.prepareStatement("insert into notes values (?, ?)")) {
                for (int i = 30; i < 33; i++) { statement.setLong(1, i); statement.setString(2, "row " + i); statement.addBatch(); }
                statement.executeBatch();
            }
            return asked("select line, content from notes order by line");
        });
        check("getTables", () -> sorted(rows(meta.getTables(null, "public", "%", new String[] {"TABLE", "VIEW"}), "TABLE_NAME", "TABLE_TYPE")));
        check("getTables by a pattern", () -> rows(meta.getTables(null, "public", "n%", null), "TABLE_NAME"));
        check("getColumns", () -> rows(meta.getColumns(null, "public", "visits", "%"), "COLUMN_NAME", "ORDINAL_POSITION", "IS_NULLABLE"));
        check("getSchemas", () -> sorted(rows(meta.getSchemas(), "TABLE_SCHEM")).stream().filter(List.of("public", "staging")::contains).toList());
        check("getPrimaryKeys", () -> rows(meta.getPrimaryKeys(null, "public", "visits"), "COLUMN_NAME"));
        check("getTypeInfo", () -> rows(meta.getTypeInfo(), "TYPE_NAME").size() > 5);
        check("getMaxColumnsInSelect", () -> meta.getMaxColumnsInSelect() >= 0);
        check("isReadOnly", meta::isReadOnly);
        check("isValid", () -> connection.isValid(5));
        for (String sql : List.of("select nothing", "select * from nothing", "selec 1", "select 1 / 0", "select 'x'::int"))
            check("an error: " + sql, () -> asked(sql));
        check("after an error", () -> asked("select 1 + 1"));
        check("closed", () -> { connection.close(); return connection.isClosed(); });
        // The driver of Flight SQL leaves threads behind.
        System.exit(0);
    }
}
