package fencelock;

import java.io.PrintStream;
import java.net.URI;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.ResultSet;
import java.util.TimeZone;
import javax.sql.DataSource;
import net.javacrumbs.shedlock.provider.jdbctemplate.JdbcTemplateLockProvider;
import org.mariadb.jdbc.MariaDbDataSource;
import org.postgresql.ds.PGSimpleDataSource;

/** Takes orders for ShedLock's lock, and for the one of tutorials, on stdin; interop/README.md says which. */
public final class SqlDriver {
    private SqlDriver() {}

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        // A library that prints must not answer for us.
        System.setOut(System.err);
        // A zone that never has the time of UTC.
        TimeZone.setDefault(TimeZone.getTimeZone("America/New_York"));
        URI url = URI.create(args[0]);
        boolean isPostgres = url.getScheme().equals("postgres");
        DataSource database = isPostgres ? postgres(url) : mariadb(url);
        String version = versions() + " zone=" + zone(database, isPostgres);
        new Orders(new SqlLocks(database, isPostgres, Long.parseLong(args[1])), version, Path.of(args[2])).serve(answers);
        // Threads may still wait for a lock, and what is held lapses.
        Runtime.getRuntime().halt(0);
    }

    private static DataSource postgres(URI url) {
        PGSimpleDataSource database = new PGSimpleDataSource();
        String[] login = url.getUserInfo().split(":");
        database.setUrl("jdbc:postgresql://" + url.getAuthority().replaceAll(".*@", "") + url.getPath());
        database.setUser(login[0]);
        database.setPassword(login[1]);
        return database;
    }

    /** The driver sets the zone of its sessions only when it is told to, and by its name only where the server knows names. */
    private static DataSource mariadb(URI url) throws Exception {
        String[] login = url.getUserInfo().split(":");
        MariaDbDataSource database = new MariaDbDataSource("jdbc:mariadb://" + url.getAuthority().replaceAll(".*@", "")
                + url.getPath() + "?connectionTimeZone=-05:00&forceConnectionTimeZoneToSession=true");
        database.setUser(login[0]);
        database.setPassword(login[1]);
        return database;
    }

    private static String zone(DataSource database, boolean isPostgres) throws Exception {
        String asked = isPostgres ? "SHOW TimeZone" : "SELECT @@session.time_zone";
        try (Connection connection = database.getConnection();
                ResultSet rows = connection.createStatement().executeQuery(asked)) {
            rows.next();
            return rows.getString(1);
        }
    }

    private static String versions() {
        String jar = JdbcTemplateLockProvider.class.getProtectionDomain().getCodeSource().getLocation().getPath();
        return "ShedLock=" + jar.replaceAll(".*template-(.*)\\.jar", "$1") + " Java=" + System.getProperty("java.version");
    }
}
