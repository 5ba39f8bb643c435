package fencelock;

import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** The locks of Redisson by name: `Lock`, `SpinLock`, `FencedLock`, `FairLock`, `ReadLock` and `WriteLock`. */
final class RedissonLocks implements Recipe.Locks {
    /** Between two looks at a thread. */
    private static final long LOOK_NANOS = 100_000;

    private final RedissonClient client;

    RedissonLocks(RedissonClient client) {
        this.client = client;
    }

    @Override
    public Recipe of(String recipe, String parent, String name) {
        String key = parent + ":" + name;
        switch (recipe) {
            case "Lock":
                return new Contender(client.getLock(key));
            case "SpinLock":
                return new Contender(client.getSpinLock(key));
            case "FencedLock":
                return new Contender(client.getFencedLock(key));
            case "ReadLock":
                return new Contender(client.getReadWriteLock(key).readLock());
            case "WriteLock":
                return new Contender(client.getReadWriteLock(key).writeLock());
            case "FairLock":
                return new Contender(client.getFairLock(key));
            default:
                throw new IllegalArgumentException("no such recipe: " + recipe);
        }
    }

    private static final class Contender implements Recipe {
        private final RLock lock;
        private volatile Thread thread;

        private Contender(RLock lock) {
            this.lock = lock;
        }

        @Override
        public Held acquire(long waitMs) throws Exception {
            thread = Thread.currentThread();
            if (waitMs < 0) {
                lock.lock();
            } else if (!lock.tryLock(waitMs, TimeUnit.MILLISECONDS)) {
                return null;
            }
            return lock::unlock;
        }

        /** Who waits is nowhere to be seen on the server with the plain lock: it waits for a message, in a semaphore. */
        @Override
        public int queued() {
            Thread contender = thread;
            if (contender == null) {
                return 0;
            }
            LockSupport.parkNanos(LOOK_NANOS);
            for (StackTraceElement frame : contender.getStackTrace()) {
                if (frame.getClassName().equals(Semaphore.class.getName())) {
                    return 1;
                }
            }
            return 0;
        }
    }
}
