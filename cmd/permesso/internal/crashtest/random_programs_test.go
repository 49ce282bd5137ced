package crashtest

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/codec"
	"github.com/permesso-dev/permesso/ipc/crashfs"
)

// generator writes a random program and, beside it, what the program must do: it evaluates nothing.
type generator struct {
	rng    *rand.Rand
	head   strings.Builder // functions
	body   strings.Builder
	script script
	calls  []generatedCall
	failed bool // the program has stopped by now
}

// generatedCall is one call, with what it gives.
type generatedCall struct {
	tool, text string
	try        bool
	name       string // of the variable with its result; "": none
	fails      bool
}

// generate gives a program of up to twelve calls.
func generate(rng *rand.Rand) script {
	g := &generator{rng: rng}
	for range rng.IntN(3) {
		g.read()
	}
	for len(g.calls) < 12 {
		switch rng.IntN(7) {
		case 0:
			g.loop()
		case 1:
			g.function()
		case 2:
			g.branch()
		case 3:
			g.pass()
		case 4:
			if len(g.calls) > 2 {
				g.finish()
				return g.script
			}
		default:
			g.call("    ", g.word())
		}
	}
	g.finish()
	return g.script
}

func (g *generator) finish() {
	if g.body.Len() == 0 {
		g.body.WriteString("    pass\n")
	}
	g.script.source = g.head.String() + "def main():\n" + g.body.String()
	g.script.allowed = !slices.ContainsFunc(g.calls, func(c generatedCall) bool { return c.tool != "auto" && c.tool != readTool })
}

// word is a text; one in five makes a handler fail.
func (g *generator) word() string {
	w := fmt.Sprintf("t%d", g.rng.IntN(1000))
	if g.rng.IntN(5) == 0 {
		w += "!"
	}
	return w
}

func (g *generator) tool() string {
	return []string{"run", "run", "auto", "again", taskTool}[g.rng.IntN(5)]
}

// add notes a call, and whether it runs when nothing crashes.
func (g *generator) add(c generatedCall, possible bool) {
	c.fails = strings.Contains(c.text, "!") && c.tool != taskTool
	g.calls = append(g.calls, c)
	g.script.texts = append(g.script.texts, c.text)
	if g.failed || !possible {
		g.failed = true
		return
	}
	g.script.runs++
	g.failed = c.fails && !c.try
}

// write writes a call with an argument, as it stands in the program.
func (g *generator) write(indent string, c generatedCall, argument string) {
	call := fmt.Sprintf("tools.%s(text = %s)", c.tool, argument)
	if c.try {
		call = fmt.Sprintf("try_(tools.%s, text = %s)", c.tool, argument)
	}
	if c.name != "" {
		call = c.name + " = " + call
	}
	g.body.WriteString(indent + call + "\n")
}

func (g *generator) call(indent, text string) {
	c := generatedCall{tool: g.tool(), text: text, try: g.rng.IntN(3) == 0, name: fmt.Sprintf("v%d", len(g.calls))}
	g.write(indent, c, quote(text))
	g.add(c, true)
}

func quote(text string) string { return string(codec.Quote(text)) }

// read reads, before any other call; its result is known.
func (g *generator) read() {
	c := generatedCall{tool: readTool, text: fmt.Sprintf("t%d", g.rng.IntN(1000)), name: fmt.Sprintf("v%d", len(g.calls))}
	g.write("    ", c, quote(c.text))
	g.add(c, true)
	g.script.reads++
}

func (g *generator) loop() {
	words := []string{g.word(), g.word()}
	c := generatedCall{tool: g.tool(), try: g.rng.IntN(3) == 0}
	fmt.Fprintf(&g.body, "    for x in [%s, %s]:\n", quote(words[0]), quote(words[1]))
	g.write("        ", c, `"for " + x`)
	for _, w := range words {
		c.text = "for " + w
		g.add(c, true)
	}
}

func (g *generator) function() {
	name, c := fmt.Sprintf("f%d", len(g.calls)), generatedCall{tool: g.tool(), text: g.word()}
	fmt.Fprintf(&g.head, "def %s(x):\n    return tools.%s(text = x)\n", name, c.tool)
	fmt.Fprintf(&g.body, "    %s(%s)\n", name, quote(c.text))
	g.add(c, true)
}

// branch looks at the result of a read.
func (g *generator) branch() {
	if g.script.reads == 0 {
		return
	}
	i := g.rng.IntN(g.script.reads)
	fmt.Fprintf(&g.body, "    if %s[\"text\"] == %s:\n", g.calls[i].name, quote(g.calls[i].text))
	g.call("        ", g.word())
	g.body.WriteString("    else:\n        tools.run(text = \"never\")\n")
}

// pass gives the result of an earlier call to another one.
func (g *generator) pass() {
	for _, i := range g.rng.Perm(len(g.calls)) {
		from := g.calls[i]
		if from.name == "" || from.tool == taskTool {
			continue
		}
		value := from.name
		if from.try {
			value += ".value"
		}
		c := generatedCall{tool: "run", text: from.text, try: g.rng.IntN(3) == 0}
		g.write("    ", c, value+`["text"]`)
		g.add(c, !from.fails)
		return
	}
}

// TestRandomPrograms plays random programs, and crashes at their file operations: effects are a prefix of the plan, each at
// most once, and the record says which. PERMESSO_SEED repeats a sample.
func TestRandomPrograms(t *testing.T) {
	config, err := newConfig("")
	require.NoError(t, err)
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	programs, seed, began := 500, sampleSeed(t), time.Now()
	switch {
	case fullRun():
		programs = 10_000
	case raceEnabled || testing.Short():
		programs = 40
	}
	x := &explorer{search: search{Config: config}, Seed: seed, Budget: 1 << 60}
	r, err := explore(&x.search, runtime.NumCPU(), func(jobs chan<- job) error {
		for i := range programs {
			rng := rand.New(rand.NewPCG(seed, uint64(i))) // the seed makes runs repeatable
			s := generate(rng)
			verdict := approval.Approved
			if rng.IntN(8) == 0 {
				verdict = approval.Denied
			}
			request := requestFile{idA, fmt.Sprintf(`{"request_id":%q,"program":%s}`, idA, codec.Quote(s.source))}
			jobs <- job{&flow{
				Name: "random program", actions: "program random; step; tap " + string(verdict) + "; step", generated: &s,
				Script: []action{agent(request), step, decision(verdict, inside), step},
			}, uint64(i)}
		}
		return nil
	}, func(j job) error {
		w := &worker{explorer: x, rng: rand.New(rand.NewPCG(seed+1, j.run))} // as above
		return w.playProgram(j.flow, fullRun() && j.run%everyOf == 0)
	})
	require.NoError(t, err)
	t.Logf("%d programs, %d disk states in %v", programs, r.States, time.Since(began).Round(time.Millisecond))
	require.Empty(t, r.Violations, "%s", r)
	require.Greater(t, r.States, programs)
}

// perProgram is how many crashes are tried of one program. Of one in everyOf, a full run tries each file operation.
func perProgram() int {
	if fullRun() {
		return 20
	}
	return 3
}

const everyOf = 20

// playProgram plays a program without a crash, which must run as far as it can, then with crashes.
func (x *worker) playProgram(f *flow, every bool) error {
	w, err := x.Config.newSim(f)
	if err != nil {
		return err
	}
	points, err := x.run(w)
	if err != nil {
		return fmt.Errorf("without a crash: %w\n%s", err, f.generated.source)
	}
	bad := w.checkPromises()
	ran := len(w.stepEffects(idA))
	want := f.generated.runs
	if f.has("denied") && !f.generated.allowed {
		want = f.generated.reads
	}
	if ran != want {
		rec, _ := w.record(keyA)
		bad = append(bad, fmt.Sprintf("R %d steps have run, not %d: %s", ran, want, rec.Response))
	}
	x.verdict(w, bad, f.generated.source)
	for i, p := range points {
		if !every && x.rng.IntN(len(points)) >= perProgram() {
			continue
		}
		if i%2 == 0 {
			x.start(p, p.disk.Kill(), "kill\n"+f.generated.source, 0)
			continue
		}
		way := crashfs.Seeded(x.rng.Uint64())
		x.start(p, p.disk.Cut(way), way.String()+"\n"+f.generated.source, 0)
	}
	return nil
}
