package fencelock;

import java.io.PrintStream;
import java.nio.file.Path;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Takes orders for Redisson's locks on stdin; interop/README.md says which. */
public final class RedissonDriver {
    private RedissonDriver() {}

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        // A library that prints must not answer for us.
        System.setOut(System.err);
        Config config = new Config();
        config.setLockWatchdogTimeout(Long.parseLong(args[1]));
        config.useSingleServer().setAddress(args[0]);
        RedissonClient client = Redisson.create(config);
        new Orders(new RedissonLocks(client), versions(), Path.of(args[2])).serve(answers);
        // Threads may still wait for a lock, and what is held lapses.
        Runtime.getRuntime().halt(0);
    }

    private static String versions() {
        String jar = Redisson.class.getProtectionDomain().getCodeSource().getLocation().getPath();
        return "Redisson=" + jar.replaceAll(".*redisson-(.*)\\.jar", "$1") + " Java=" + System.getProperty("java.version");
    }
}
