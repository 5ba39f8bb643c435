package fencelock;

import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.zookeeper.data.Stat;

/** The locks of Curator by name, behind one face. */
final class CuratorLocks implements Recipe.Locks {
    private final CuratorFramework client;

    CuratorLocks(CuratorFramework client) {
        this.client = client;
    }

    @Override
    public Recipe of(String recipe, String parent, String name) {
        String path = parent + "/" + name;
        int colon = recipe.indexOf(':');
        String kind = colon < 0 ? recipe : recipe.substring(0, colon);
        switch (kind) {
            case "InterProcessMutex":
                return lock(new InterProcessMutex(client, path), path);
            case "WriteLock":
                return writer(new InterProcessReadWriteLock(client, path), path);
            case "ReadLock":
                return lock(new InterProcessReadWriteLock(client, path).readLock(), path);
            case "InterProcessSemaphoreMutex":
                return lock(new InterProcessSemaphoreMutex(client, path), path + "/leases");
            case "InterProcessSemaphoreV2":
                int permits = Integer.parseInt(recipe.substring(colon + 1));
                return semaphore(new InterProcessSemaphoreV2(client, path, permits), path + "/leases");
            default:
                throw new IllegalArgumentException("no such recipe: " + recipe);
        }
    }

    private Recipe lock(InterProcessLock lock, String queue) {
        return new Recipe() {
            @Override
            public Recipe.Held acquire(long waitMs) throws Exception {
                if (waitMs < 0) {
                    lock.acquire();
                } else if (!lock.acquire(waitMs, TimeUnit.MILLISECONDS)) {
                    return null;
                }
                return lock::release;
            }

            @Override
            public int queued() throws Exception {
                return children(queue);
            }
        };
    }

    private Recipe writer(InterProcessReadWriteLock both, String queue) {
        Recipe writer = lock(both.writeLock(), queue);
        return new Recipe() {
            @Override
            public Recipe.Held acquire(long waitMs) throws Exception {
                Recipe.Held held = writer.acquire(waitMs);
                return held == null ? null : writing(both, held);
            }

            @Override
            public int queued() throws Exception {
                return children(queue);
            }
        };
    }

    /** As Curator's documentation has a downgrade: read under the write lock, then release that. */
    private static Recipe.Held writing(InterProcessReadWriteLock both, Recipe.Held held) {
        return new Recipe.Held() {
            @Override
            public void release() throws Exception {
                held.release();
            }

            @Override
            public Recipe.Held downgrade() throws Exception {
                both.readLock().acquire();
                held.release();
                return both.readLock()::release;
            }
        };
    }

    private Recipe semaphore(InterProcessSemaphoreV2 semaphore, String queue) {
        return new Recipe() {
            @Override
            public Recipe.Held acquire(long waitMs) throws Exception {
                Lease lease = waitMs < 0 ? semaphore.acquire() : semaphore.acquire(waitMs, TimeUnit.MILLISECONDS);
                return lease == null ? null : () -> semaphore.returnLease(lease);
            }

            @Override
            public int queued() throws Exception {
                return children(queue);
            }
        };
    }

    private int children(String path) throws Exception {
        Stat stat = client.checkExists().forPath(path);
        return stat == null ? 0 : stat.getNumChildren();
    }
}
