package fencelock;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.time.Duration;
import java.time.Instant;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import javax.sql.DataSource;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.jdbctemplate.JdbcTemplateLockProvider;
import org.springframework.jdbc.core.JdbcTemplate;

/** The locks by name: `ShedLock` and its table, as its provider has it, and `tutorial`, as it is written by hand. */
final class SqlLocks implements Recipe.Locks {
    /** Between two tries. */
    private static final long PAUSE_MS = 100;

    private final DataSource database;
    /** By the name of the table. */
    private final Map<String, JdbcTemplateLockProvider> providers = new ConcurrentHashMap<>();
    private final boolean isPostgres;
    private final long ttlMs;

    SqlLocks(DataSource database, boolean isPostgres, long ttlMs) {
        this.database = database;
        this.isPostgres = isPostgres;
        this.ttlMs = ttlMs;
    }

    private JdbcTemplateLockProvider provider(String table) {
        return new JdbcTemplateLockProvider(JdbcTemplateLockProvider.Configuration.builder()
                .withJdbcTemplate(new JdbcTemplate(database))
                .withTableName(table)
                .usingDbTime()
                .build());
    }

    /** One try: null when somebody has it. */
    private interface Try {
        Recipe.Held once() throws Exception;
    }

    @Override
    public Recipe of(String recipe, String parent, String name) {
        String[] parts = recipe.split(":");
        switch (parts[0]) {
            case "ShedLock":
                JdbcTemplateLockProvider provider = providers.computeIfAbsent(parts[1], this::provider);
                return new Contender(() -> shedLock(provider, name));
            case "tutorial":
                return new Contender(() -> insert(name));
            default:
                throw new IllegalArgumentException("no such recipe: " + recipe);
        }
    }

    private Recipe.Held shedLock(JdbcTemplateLockProvider provider, String name) {
        LockConfiguration asked =
                new LockConfiguration(Instant.now(), name, Duration.ofMillis(ttlMs), Duration.ZERO);
        Optional<SimpleLock> lock = provider.lock(asked);
        return lock.<Recipe.Held>map(held -> held::unlock).orElse(null);
    }

    private Recipe.Held insert(String name) throws SQLException {
        String value = UUID.randomUUID().toString();
        String end = isPostgres ? "now() + ? * interval '1 second'" : "DATE_ADD(NOW(), INTERVAL ? SECOND)";
        try {
            run("DELETE FROM distributed_lock WHERE expire_time < now()");
            run("INSERT INTO distributed_lock (lock_key, lock_value, expire_time) VALUES (?, ?, " + end + ")",
                    name, value, ttlMs / 1000);
        } catch (SQLException fault) {
            // A duplicate, or rolled back in favour of another client.
            if (fault.getSQLState().startsWith("23") || fault.getSQLState().startsWith("40")) {
                return null;
            }
            throw fault;
        }
        return () -> {
            String delete = "DELETE FROM distributed_lock WHERE lock_key = ? AND lock_value = ?";
            for (int tries = 0; ; tries++) {
                try {
                    if (run(delete, name, value) != 1) {
                        throw new IllegalStateException("the lock was not ours any more");
                    }
                    return;
                } catch (SQLException fault) {
                    if (!fault.getSQLState().startsWith("40") || tries == 9) {
                        throw fault;
                    }
                }
            }
        };
    }

    private int run(String sql, Object... parameters) throws SQLException {
        try (Connection connection = database.getConnection(); PreparedStatement statement = connection.prepareStatement(sql)) {
            for (int index = 0; index < parameters.length; index++) {
                statement.setObject(index + 1, parameters[index]);
            }
            return statement.executeUpdate();
        }
    }

    private static final class Contender implements Recipe {
        private final Try attempt;
        private volatile boolean wasRefused;

        private Contender(Try attempt) {
            this.attempt = attempt;
        }

        @Override
        public Held acquire(long waitMs) throws Exception {
            long end = System.nanoTime() + waitMs * 1_000_000;
            while (true) {
                Held held = attempt.once();
                if (held != null) {
                    return held;
                }
                wasRefused = true;
                if (waitMs >= 0 && System.nanoTime() >= end) {
                    return null;
                }
                Thread.sleep(PAUSE_MS);
            }
        }

        /** There is no queue in which it could be seen that waits: who was refused does. */
        @Override
        public int queued() {
            return wasRefused ? 1 : 0;
        }
    }
}
