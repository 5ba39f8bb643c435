package fencelock;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.function.LongFunction;
import java.util.stream.Collectors;
import java.util.stream.LongStream;

/** What a benchmark measures, with all times taken in here. */
final class Workloads {
    /** Waiters that are there before the memory of others is looked at. */
    private static final int WARM_WAITERS = 32;

    private final Recipe.Locks locks;
    private final Path log;
    private final List<FutureTask<long[]>> entrants = new ArrayList<>();
    private final List<Recipe.Held> held = new ArrayList<>();
    private CountDownLatch gate = new CountDownLatch(1);
    private String recipe;
    private String parent;
    private String name;

    Workloads(Recipe.Locks locks, Path log) {
        this.locks = locks;
        this.log = log;
    }

    String obey(String[] words) throws Exception {
        switch (words[0]) {
            case "use":
                recipe = words[1];
                parent = words[2];
                name = words[3];
                return "done";
            case "cycle":
                return cycle(number(words, 1));
            case "enter":
                enter(number(words, 1), number(words, 2) != 0);
                return "in";
            case "go":
                return go();
            case "contend":
                return contend(locks(number(words, 1), any -> lock()), number(words, 2), number(words, 3), number(words, 4));
            case "spread":
                long first = number(words, 2);
                return contend(locks(number(words, 1), i -> neighbour(first + i)), first, number(words, 3), number(words, 4));
            case "share":
                return contend(locks(1 + number(words, 1), this::sharing), 0, number(words, 2), number(words, 3));
            case "permits":
                return contend(locks(number(words, 2), any -> permit(words[1])), 0, number(words, 3), number(words, 4));
            case "hold":
                return hold(number(words, 1), number(words, 2));
            case "wait":
                return waiters(number(words, 1));
            default:
                throw new IllegalArgumentException("no such order: " + String.join(" ", words));
        }
    }

    /** A lock object for each who contends: those who share one drop each other's watches with every release. */
    private Recipe lock() {
        return locks.of(recipe, parent, name);
    }

    private Recipe neighbour(long number) {
        return locks.of(recipe, parent, name + "-" + number);
    }

    /** One who writes, and all others read. */
    private Recipe sharing(long number) {
        return locks.of(number == 0 ? "WriteLock" : "ReadLock", parent, name);
    }

    private Recipe permit(String capacity) {
        return locks.of("InterProcessSemaphoreV2:" + capacity, parent, name);
    }

    private static List<Recipe> locks(long count, LongFunction<Recipe> lock) {
        return LongStream.range(0, count).mapToObj(lock).collect(Collectors.toList());
    }

    private static long number(String[] words, int index) {
        return Long.parseLong(words[index]);
    }

    private String cycle(long count) throws Exception {
        Recipe lock = lock();
        long[] took = new long[Math.toIntExact(count)];
        for (int i = 0; i < took.length; i++) {
            long before = System.nanoTime();
            lock.acquire(-1).release();
            took[i] = System.nanoTime() - before;
        }
        writeLog(List.of(took));
        return "done";
    }

    private void enter(long index, boolean holds) throws Exception {
        CountDownLatch acquired = new CountDownLatch(1);
        CountDownLatch open = holds ? (gate = new CountDownLatch(1)) : new CountDownLatch(0);
        Recipe lock = lock();
        int before = lock.queued();
        FutureTask<long[]> task = start(() -> {
            Recipe.Held got = lock.acquire(-1);
            long at = System.nanoTime();
            acquired.countDown();
            open.await();
            long releasing = System.nanoTime();
            got.release();
            return new long[] {index, at, releasing};
        });
        entrants.add(task);
        while (holds ? acquired.getCount() > 0 : lock.queued() <= before) {
            if (task.isDone()) {
                // With the fault that kept it from waiting.
                task.get();
                return;
            }
            Thread.onSpinWait();
        }
    }

    private String go() throws Exception {
        gate.countDown();
        List<FutureTask<long[]>> tasks = new ArrayList<>(entrants);
        entrants.clear();
        writeLog(results(tasks));
        return "done";
    }

    /** Each of them is taken as often as can be between two moments. */
    private String contend(List<Recipe> locks, long first, long start, long end) throws Exception {
        List<FutureTask<long[]>> tasks = new ArrayList<>();
        for (int i = 0; i < locks.size(); i++) {
            Recipe mine = locks.get(i);
            long number = first + i;
            tasks.add(start(() -> sections(mine, number, start, end)));
        }
        writeLog(results(tasks));
        return "done";
    }

    private static long[] sections(Recipe lock, long who, long start, long end) throws Exception {
        long[] sections = new long[3 * 1024];
        Thread.sleep(Math.max(0, (start - System.nanoTime()) / 1_000_000));
        for (int count = 0; ; count += 3) {
            Recipe.Held got = lock.acquire(-1);
            long at = System.nanoTime();
            if (at >= end) {
                got.release();
                return java.util.Arrays.copyOf(sections, count);
            }
            if (count == sections.length) {
                sections = java.util.Arrays.copyOf(sections, 2 * count);
            }
            sections[count] = who;
            sections[count + 1] = at;
            sections[count + 2] = System.nanoTime();
            got.release();
        }
    }

    private String hold(long count, long tasks) throws Exception {
        long before = memory();
        long heapBefore = heap();
        long start = System.nanoTime();
        List<FutureTask<long[]>> takers = new ArrayList<>();
        for (long first = 0; first < tasks; first++) {
            long mine = first;
            takers.add(start(() -> {
                for (long i = mine; i < count; i += tasks) {
                    Recipe.Held got = neighbour(i).acquire(-1);
                    synchronized (held) {
                        held.add(got);
                    }
                }
                return new long[0];
            }));
        }
        results(takers);
        long took = System.nanoTime() - start;
        return "done before=" + before + " after=" + memory() + " heap_before=" + heapBefore + " heap_after=" + heap()
                + " took=" + took;
    }

    private String waiters(long count) throws Exception {
        held.add(lock().acquire(-1));
        for (int i = 0; i < WARM_WAITERS; i++) {
            enter(i, false);
        }
        long before = memory();
        long heapBefore = heap();
        for (long i = 0; i < count; i++) {
            enter(i, false);
        }
        return "done before=" + before + " after=" + memory() + " heap_before=" + heapBefore + " heap_after=" + heap();
    }

    /** Resident bytes, after what is garbage has gone. */
    private static long memory() throws IOException {
        System.gc();
        String[] pages = Files.readString(Path.of("/proc/self/statm")).split(" ");
        return Long.parseLong(pages[1]) * 4096;
    }

    /** Bytes of it in use. */
    private static long heap() {
        return Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
    }

    private static FutureTask<long[]> start(Callable<long[]> work) {
        FutureTask<long[]> task = new FutureTask<>(work);
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        thread.start();
        return task;
    }

    private static List<long[]> results(List<FutureTask<long[]>> tasks) throws InterruptedException, ExecutionException {
        List<long[]> results = new ArrayList<>();
        for (FutureTask<long[]> task : tasks) {
            results.add(task.get());
        }
        return results;
    }

    private void writeLog(List<long[]> parts) throws IOException {
        int count = parts.stream().mapToInt(part -> part.length).sum();
        ByteBuffer bytes = ByteBuffer.allocate(8 * count).order(ByteOrder.LITTLE_ENDIAN);
        for (long[] part : parts) {
            for (long number : part) {
                bytes.putLong(number);
            }
        }
        Files.write(log, bytes.array());
    }
}
