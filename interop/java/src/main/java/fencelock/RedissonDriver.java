package fencelock;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Takes a benchmark's orders for Redisson's locks on stdin; interop/README.md says which. */
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
        Workloads workloads = new Workloads(new RedissonLocks(client), Path.of(args[2]));
        answers.println("ready");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            answers.println(answer(workloads, line.split(" ")));
        }
        // Threads may still wait for a lock, and what is held lapses.
        Runtime.getRuntime().halt(0);
    }

    private static String answer(Workloads workloads, String[] words) {
        try {
            return words[0].equals("version") ? "done " + versions() : workloads.obey(words);
        } catch (Exception | LinkageError fault) {
            return "failed " + fault.toString().replace('\n', ' ');
        }
    }

    private static String versions() {
        String jar = Redisson.class.getProtectionDomain().getCodeSource().getLocation().getPath();
        return "Redisson=" + jar.replaceAll(".*redisson-(.*)\\.jar", "$1") + " Java=" + System.getProperty("java.version");
    }
}
