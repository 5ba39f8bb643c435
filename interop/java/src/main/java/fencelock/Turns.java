package fencelock;

import java.io.IOException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** What is done under a lock, again and again, so that two who should not be there at once are found. */
final class Turns {
    private Turns() {}

    /** What is done each time. */
    private interface Work {
        void run() throws Exception;
    }

    private static String take(Recipe recipe, int turns, Work work) throws Exception {
        for (int turn = 0; turn < turns; turn++) {
            Recipe.Held acquired = recipe.acquire(-1);
            try {
                work.run();
            } finally {
                acquired.release();
            }
        }
        return "done";
    }

    /** Adds one to a number, each time; loses counts, and says so, when two do it at once. */
    static String count(Recipe recipe, int turns, Path file) throws Exception {
        return take(recipe, turns, () -> {
            Path occupied = occupied(file);
            try {
                Files.createFile(occupied);
            } catch (FileAlreadyExistsException twice) {
                throw new IllegalStateException("two holders at once");
            }
            long number = number(file);
            // Another client that believes to hold the lock gets its chance here.
            Thread.sleep(1);
            Files.writeString(file, Long.toString(number + 1));
            Files.delete(occupied);
        });
    }

    /** Reads the number, each time, and says so when somebody counts meanwhile. */
    static String look(Recipe recipe, int turns, Path file) throws Exception {
        return take(recipe, turns, () -> {
            boolean isOccupied = Files.exists(occupied(file));
            long number = number(file);
            Thread.sleep(1);
            if (isOccupied || Files.exists(occupied(file)) || number(file) != number) {
                throw new IllegalStateException("a writer among readers");
            }
        });
    }

    /** Takes one of so many seats, each time, and leaves a byte; says so when there is no seat. */
    static String sit(Recipe recipe, int turns, Path file, int seats) throws Exception {
        return take(recipe, turns, () -> {
            Path seat = seat(file, seats);
            Files.write(file, new byte[] {'x'}, StandardOpenOption.APPEND);
            Thread.sleep(1);
            Files.delete(seat);
        });
    }

    private static Path seat(Path file, int seats) throws IOException {
        for (int number = 0; number < seats; number++) {
            try {
                return Files.createFile(Path.of(file + ".seat-" + number));
            } catch (FileAlreadyExistsException taken) {
                // The next one.
            }
        }
        throw new IllegalStateException("more than " + seats + " holders at once");
    }

    private static Path occupied(Path file) {
        return Path.of(file + ".occupied");
    }

    private static long number(Path file) throws IOException {
        return Long.parseLong(Files.readString(file).trim());
    }
}
