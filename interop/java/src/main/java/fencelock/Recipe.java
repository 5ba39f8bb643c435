package fencelock;

import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;

/** The locks of Curator by name, behind one face. */
interface Recipe {
    /** Something that was acquired. Curator's mutexes belong to the thread that acquired them. */
    interface Held {
        void release() throws Exception;

        /** Goes on as a reader, without letting go. */
        default Held downgrade() throws Exception {
            throw new UnsupportedOperationException("only a writer can become a reader");
        }
    }

    /** Null when time ran out; a negative time is without limit. */
    Held acquire(long waitMs) throws Exception;

    /** Where its contenders queue. */
    String queue();

    static Recipe of(CuratorFramework client, String recipe, String parent, String name) {
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

    private static Recipe lock(InterProcessLock lock, String queue) {
        return new Recipe() {
            @Override
            public Held acquire(long waitMs) throws Exception {
                if (waitMs < 0) {
                    lock.acquire();
                } else if (!lock.acquire(waitMs, TimeUnit.MILLISECONDS)) {
                    return null;
                }
                return lock::release;
            }

            @Override
            public String queue() {
                return queue;
            }
        };
    }

    private static Recipe writer(InterProcessReadWriteLock both, String queue) {
        Recipe writer = lock(both.writeLock(), queue);
        return new Recipe() {
            @Override
            public Held acquire(long waitMs) throws Exception {
                Held held = writer.acquire(waitMs);
                return held == null ? null : writing(both, held);
            }

            @Override
            public String queue() {
                return queue;
            }
        };
    }

    /** As Curator's documentation has a downgrade: read under the write lock, then release that. */
    private static Held writing(InterProcessReadWriteLock both, Held held) {
        return new Held() {
            @Override
            public void release() throws Exception {
                held.release();
            }

            @Override
            public Held downgrade() throws Exception {
                both.readLock().acquire();
                held.release();
                return both.readLock()::release;
            }
        };
    }

    private static Recipe semaphore(InterProcessSemaphoreV2 semaphore, String queue) {
        return new Recipe() {
            @Override
            public Held acquire(long waitMs) throws Exception {
                Lease lease = waitMs < 0 ? semaphore.acquire() : semaphore.acquire(waitMs, TimeUnit.MILLISECONDS);
                return lease == null ? null : () -> semaphore.returnLease(lease);
            }

            @Override
            public String queue() {
                return queue;
            }
        };
    }
}
