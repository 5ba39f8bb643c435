package fencelock;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;

/** The orders that every driver takes; interop/README.md says which. */
class Orders {
    private final Recipe.Locks locks;
    private final String version;
    private final Workloads workloads;
    private final Map<Integer, Recipe.Held> held = new HashMap<>();
    private int handles;

    Orders(Recipe.Locks locks, String version, Path log) {
        this.locks = locks;
        this.version = version;
        this.workloads = new Workloads(locks, log);
    }

    /** Until stdin ends. */
    final void serve(PrintStream answers) throws IOException {
        answers.println("ready");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            answers.println(answer(line.split(" ")));
        }
    }

    private String answer(String[] words) {
        try {
            return obey(words);
        } catch (Exception | LinkageError fault) {
            return "failed " + fault.toString().replace('\n', ' ');
        }
    }

    String obey(String[] words) throws Exception {
        switch (words[0]) {
            case "version":
                return "done " + version;
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
            default:
                return workloads.obey(words);
        }
    }

    private Recipe recipe(String[] words) {
        return locks.of(words[1], words[2], words[3]);
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
}
