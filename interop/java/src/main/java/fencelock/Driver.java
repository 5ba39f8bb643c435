package fencelock;

import java.io.PrintStream;
import java.nio.file.Path;
import java.util.Collections;
import java.util.List;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.KeeperException.NoNodeException;

/** Takes orders for Curator's locks on stdin; interop/README.md says which. */
public final class Driver extends Orders {
    private final CuratorFramework client;

    private Driver(CuratorFramework client, Path log) {
        super(new CuratorLocks(client), versions(), log);
        this.client = client;
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
        new Driver(client, Path.of(args[2])).serve(answers);
        client.close();
        // Threads may still wait for a lock.
        Runtime.getRuntime().halt(0);
    }

    @Override
    String obey(String[] words) throws Exception {
        if (words[0].equals("children")) {
            return ("done " + String.join(" ", children(words[1]))).trim();
        }
        return super.obey(words);
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

    private List<String> children(String path) throws Exception {
        try {
            return client.getChildren().forPath(path);
        } catch (NoNodeException gone) {
            return Collections.emptyList();
        }
    }
}
