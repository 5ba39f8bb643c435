// Judges a history a second time: every `*.log` of a directory, in the form that crates/fencelock-lab/README.md describes.
//
// The model is a fenced first-come lock: a contender enters, is granted while the weights of all holders fit the capacity, and leaves; tokens
// of whole claims rise, and of two that exclude each other the first to enter is the first to be served. porcupine looks for an order of
// these steps within the times of the log. Resources are judged by the order of their own logs. `busy` answers are not judged.
// The file `lapses.json` says when the store lost its memory, or its clock jumped ahead: then holds ended that their holders believed in.
//
// Arguments: the directory, the longest time of a verdict, and `unordered` for a store that promises no order. Prints one line for each
// lock, and exits with 1 when a history is impossible, with 2 when it is not understood or took too long.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

var patience = 2 * time.Minute

// A line of any log: all fields of all events.
type line struct {
	Format, Client, Event, Lock string
	Section, At, Called         int64
	Weight, Capacity            uint32
	Token                       *int64
	Accepted                    bool
}

// A moment at which leases ended early: within `From` and `Over`. All earlier grants are read by `By`, and believed until `Until`.
type lapse struct {
	From, Over, By int64
	Until          int64 `json:"believed_until"`
}

type section struct {
	lock                       string
	weight, capacity           uint64
	entered, by                int64
	granted, inside, left, end int64
	token                      *int64
	gone                       int64
}

const never = math.MaxInt64

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func main() {
	paths, err := filepath.Glob(filepath.Join(os.Args[1], "*.log"))
	must(err)
	if len(os.Args) > 2 {
		patience, err = time.ParseDuration(os.Args[2])
		must(err)
	}
	ordered := !slices.Contains(os.Args, "unordered")
	var lapses []lapse
	text, err := os.ReadFile(filepath.Join(os.Args[1], "lapses.json"))
	if err == nil {
		must(json.Unmarshal(text, &lapses))
	}
	held, fallen := map[string][]*section{}, map[string]bool{}
	for _, path := range paths {
		for _, of := range read(path, fallen) {
			if of.left == never {
				of.left = max(of.granted, of.inside)
			}
			of.left = min(of.left, of.end)
			// A contender that never held the lock keeps no other from it.
			if of.granted != never && of.granted <= of.left {
				held[of.lock] = append(held[of.lock], of)
			}
		}
	}
	code := 0
	for lock, sections := range held {
		slices.SortFunc(sections, func(a, b *section) int {
			return cmp.Or(cmp.Compare(a.granted, b.granted), cmp.Compare(a.left, b.left))
		})
		var holds, enters []porcupine.Operation
		var granted, served []step
		for rank, of := range sections {
			grant := step{'g', of.weight, of.capacity, of.token, rank, of.entered, of.granted, of.left}
			leave := grant
			leave.kind = 'l'
			granted = append(granted, grant)
			// A holder from before a lapse may log its grant late.
			earliest, isLate := of.granted, false
			for _, now := range lapses {
				if now.mayEnd(grant) {
					earliest, isLate = min(earliest, max(of.entered, now.From)), true
				}
			}
			holds = append(holds, porcupine.Operation{Input: grant, Call: earliest, Return: of.granted},
				porcupine.Operation{Input: leave, Call: of.left, Return: max(of.left, of.gone)})
			if ordered && !isLate {
				enter := step{kind: 'e', weight: of.weight, capacity: of.capacity, rank: len(served)}
				served = append(served, enter)
				enters = append(enters, porcupine.Operation{Input: enter, Call: of.entered, Return: min(of.by, of.granted)})
			}
		}
		for _, now := range lapses {
			holds = append(holds, porcupine.Operation{Input: now, Call: now.From, Return: now.Over})
		}
		for name, verdict := range map[string]porcupine.CheckResult{
			"exclusion and tokens": porcupine.CheckOperationsTimeout(exclusion(granted, lapses), holds, patience),
			"order":                porcupine.CheckOperationsTimeout(order(served), enters, patience),
		} {
			fmt.Printf("%s: %d sections, %s: %s\n", lock, len(sections), name, verdict)
			code = max(code, map[porcupine.CheckResult]int{porcupine.Illegal: 1, porcupine.Unknown: 2}[verdict])
		}
	}
	for lock := range fallen {
		fmt.Printf("%s: an older token was accepted after a newer one\n", lock)
		code = max(code, 1)
	}
	os.Exit(code)
}

// The sections of a process's log. Of a resource's log: whether a token fell.
func read(path string, fallen map[string]bool) map[int64]*section {
	file, err := os.Open(path)
	must(err)
	sections, newest, lines := map[int64]*section{}, map[string]int64{}, bufio.NewReader(file)
	for {
		text, err := lines.ReadString('\n')
		if err != nil {
			return sections // The last line of a killed process may lack its end.
		}
		var of line
		must(json.Unmarshal([]byte(text), &of))
		known, isKnown := sections[of.Section]
		switch of.Event {
		case "":
			if of.Format != "" && !strings.HasSuffix(of.Format, " 1") {
				must(fmt.Errorf("%s: format %s", path, of.Format))
			}
			if last, was := newest[of.Lock]; of.Accepted && was && *of.Token < last {
				fallen[of.Lock] = true
			} else if of.Accepted {
				newest[of.Lock] = *of.Token
			}
			continue
		case "acquire":
			sections[of.Section] = &section{lock: of.Lock, weight: uint64(of.Weight), capacity: uint64(of.Capacity),
				entered: of.At, by: never, granted: never, left: never, end: never, gone: never}
			continue
		case "dead", "note":
			continue
		}
		if !isKnown {
			must(fmt.Errorf("%s: no section %d", path, of.Section))
		}
		switch of.Event {
		case "enqueued":
			known.entered, known.by = of.Called, of.At
		case "granted":
			known.granted, known.token = of.At, of.Token
		case "inside":
			known.inside = max(known.inside, of.At)
		case "belief_ends":
			known.end = min(known.end, of.At)
		case "release":
			known.left = min(known.left, of.At)
		case "gone":
			known.gone = of.At
		}
	}
}
