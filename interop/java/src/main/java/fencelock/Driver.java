package fencelock;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.KeeperException.NoNodeException;

/** Takes orders for Curator's locks on stdin; interop/README.md says which. */
public final class Driver {
    private final CuratorFramework client;
    private final Recipe.Locks locks;
    private final Workloads workloads;
    private final Map<Integer, Recipe.Held> held = new HashMap<>();
    private int handles;

    private Driver(CuratorFramework client, Path log) {
        this.client = client;
        this.locks = new CuratorLocks(client);
        this.workloads = new Workloads(locks, log);
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        // A library that prints must not answer for us.
        System.setOut(System.err);
        int sessionTimeoutMs = Integer.parseInt(args[1]);
        CuratorFramework client =
                CuratorFrameworkFactory.newClient(args[0], sessionTimeoutMs, 5_000, new ExponentialBackoffRetry(100, 10));
        client.start();
        client.blockUntilConnected();
        Driver driver = new Driver(client, Path.of(args[2]));
        answers.println("ready");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            answers.println(driver.answer(line.split(" ")));
        }
        client.close();
        // Threads may still wait for a lock.
        Runtime.getRuntime().halt(0);
    }

    private String answer(String[] words) {
        try {
            return obey(words);
        } catch (Exception | LinkageError fault) {
            return "failed " + fault.toString().replace('\n', ' ');
        }
    }

    private String obey(String[] words) throws Exception {
        switch (words[0]) {
            case "version":
                return "done " + versions();
            case "acquire":
                return acquire(recipe(words), Long.parseLong(words[4]));
            case "release":
                return release(Integer.parseInt(words[1]));
            case "downgrade":
                return downgrade(Integer.parseInt(words[1]));
            case "end":
                held.remove(Integer.parseInt(words[1]));
                return "done";
            case "count":
                return Turns.count(recipe(words), Integer.parseInt(words[4]), Path.of(words[5]));
            case "look":
                return Turns.look(recipe(words), Integer.parseInt(words[4]), Path.of(words[5]));
            case "sit":
                return Turns.sit(recipe(words), Integer.parseInt(words[4]), Path.of(words[5]), Integer.parseInt(words[6]));
            case "children":
                return ("done " + String.join(" ", children(words[1]))).trim();
            default:
                return workloads.obey(words);
        }
    }

    private Recipe recipe(String[] words) {
        return locks.of(words[1], words[2], words[3]);
    }

    private static String versions() {
        String zookeeper = org.apache.zookeeper.Version.getVersion();
        String curator = CuratorFramework.class.getPackage().getImplementationVersion();
        return "Curator=" + (curator == null ? jarVersion() : curator) + " zookeeper.jar=" + zookeeper + " Java="
                + System.getProperty("java.version");
    }

    /** From the name of the jar, for the versions whose manifest is silent. */
    private static String jarVersion() {
        String jar = CuratorFramework.class.getProtectionDomain().getCodeSource().getLocation().getPath();
        return jar.replaceAll(".*curator-framework-(.*)\\.jar", "$1");
    }

    private String acquire(Recipe recipe, long waitMs) throws Exception {
        Recipe.Held acquired = recipe.acquire(waitMs);
        long at = System.nanoTime();
        if (acquired == null) {
            return "busy";
        }
        held.put(++handles, acquired);
        return "done handle=" + handles + " at=" + at;
    }

    private String release(int handle) throws Exception {
        long at = System.nanoTime();
        held.remove(handle).release();
        return "done at=" + at;
    }

    private String downgrade(int handle) throws Exception {
        long at = System.nanoTime();
        held.put(handle, held.get(handle).downgrade());
        return "done at=" + at;
    }

    private List<String> children(String path) throws Exception {
        try {
            return client.getChildren().forPath(path);
        } catch (NoNodeException gone) {
            return Collections.emptyList();
        }
    }
}
