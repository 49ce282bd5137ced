package exec

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/approval/exec/evaluate"
	"github.com/permesso-dev/permesso/approval/facts"
)

func programTools() map[string]map[string]approval.Argument {
	return map[string]map[string]approval.Argument{
		"send_email": {"to": {Type: facts.TypeRecipients}, "body": {Type: facts.TypeText}},
		"fetch":      {"url": {Type: facts.TypeURL}},
		"store":      {"value": {Type: facts.TypeJSON}},
	}
}

func unknownResults(approval.Call) (approval.Answer, error) { return approval.Answer{}, nil }

func TestErrorsOfPrograms(t *testing.T) {
	p := &Planner{}
	stopped := errors.New("stopped")
	job := approval.ProgramJob{Tools: programTools(), Source: "def main():\n  tools.fetch(url = 'https://a.example')\n  fail('x')"}
	_, err := p.Evaluate(t.Context(), job, func(approval.Call) (approval.Answer, error) { return approval.Answer{}, stopped })
	require.ErrorIs(t, err, stopped)
	_, err = p.Evaluate(t.Context(), job, unknownResults)
	require.EqualError(t, err, "line 3: fail: x")

	job.Source = "def main():\n  tools.fetch(url = 'https://a.example')\n  max(range(1 << 60))"
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err = p.Evaluate(ctx, job, func(approval.Call) (approval.Answer, error) {
		cancel(stopped)
		return approval.Answer{}, nil
	})
	require.ErrorIs(t, err, stopped)
}

// TestTimeOfCallsDoesNotCount has a limit that is over while a call is answered.
func TestTimeOfCallsDoesNotCount(t *testing.T) {
	over := make(chan struct{}, 1)
	l := startLimit(time.Hour, func() { over <- struct{}{} })
	l.stop()
	require.LessOrEqual(t, l.left, time.Hour)
	l.left = 0
	require.Empty(t, over)
	l.resume()
	<-over
}

// TestTimeIsJudgedByTheKernel ends a process with the signal of its limit, long before its time is over by any other clock:
// the limit counts whole ticks, what a process is said to have used is counted otherwise.
func TestTimeIsJudgedByTheKernel(t *testing.T) {
	p := &Planner{}
	job := approval.ProgramJob{Tools: programTools(), Source: "def main():\n  tools.fetch(url = 'https://a.example')"}
	for signal, text := range map[syscall.Signal]string{
		syscall.SIGXCPU: "the program takes longer than 2s",
		syscall.SIGKILL: "signal: killed", // by whom is not known
	} {
		_, err := p.Evaluate(t.Context(), job, func(approval.Call) (approval.Answer, error) {
			pids := evaluations()
			require.Len(t, pids, 1)
			require.NoError(t, syscall.Kill(pids[0], signal))
			require.Eventually(t, func() bool { return len(evaluations()) == 0 }, time.Minute, time.Millisecond) // or it might still answer
			return approval.Answer{}, nil
		})
		require.ErrorContains(t, err, text)
		_, fault := errors.AsType[*approval.ProgramError](err)
		require.Equal(t, signal == syscall.SIGXCPU, fault)
	}
}

// evaluations are the processes of this one that evaluate.
func evaluations() (all []int) {
	for _, pid := range childrenOf(os.Getpid()) {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && strings.Contains(string(line), evaluate.Arg) {
			all = append(all, pid)
		}
	}
	return all
}

// TestEvaluationHasNothing looks at a process that waits for its job.
func TestEvaluationHasNothing(t *testing.T) {
	p := &Planner{}
	job := approval.ProgramJob{Tools: programTools(), Source: "def main():\n  tools.fetch(url = 'https://a.example')"}
	_, err := p.Evaluate(t.Context(), job, func(approval.Call) (approval.Answer, error) {
		pids := evaluations()
		require.NotEmpty(t, pids)
		for _, pid := range pids {
			dir := fmt.Sprintf("/proc/%d/", pid)
			environ, err := os.ReadFile(dir + "environ")
			require.NoError(t, err)
			require.Empty(t, environ)
			limits, err := os.ReadFile(dir + "limits")
			require.NoError(t, err)
			for _, limit := range []string{`Max file size +0 +0`, `Max core file size +0 +0`, `Max cpu time +2 +3`, `Max open files +16 +16`} {
				require.Regexp(t, limit, string(limits))
			}
			status, err := os.ReadFile(dir + "status")
			require.NoError(t, err)
			require.Contains(t, string(status), "NoNewPrivs:\t1")
			open, err := os.ReadDir(dir + "fd")
			require.NoError(t, err)
			for _, fd := range open {
				to, err := os.Readlink(dir + "fd/" + fd.Name())
				require.NoError(t, err)
				require.True(t, fd.Name() <= "2" || strings.HasPrefix(to, "anon_inode:"), "%s: %s", fd.Name(), to)
			}
		}
		return approval.Answer{}, nil
	})
	require.NoError(t, err)
}

// hostile is a program that must cost little and do nothing.
type hostile struct {
	name, source string
	calls        int // of fetch, at most
}

// body is the program whose main has these lines.
func body(lines ...string) string {
	return "def main():\n    " + strings.ReplaceAll(strings.Join(lines, "\n"), "\n", "\n    ") + "\n"
}

// each gives a program for each value, which replaces $.
func each(family, source string, values ...string) (all []hostile) {
	for _, v := range values {
		all = append(all, hostile{name: family + " " + v, source: strings.ReplaceAll(source, "$", v), calls: strings.Count(source, "tools.fetch(")})
	}
	return all
}

func hostilePrograms() []hostile {
	const (
		huge  = "1 << 60"
		asks  = `x = tools.fetch(url = "https://a.example")` + "\n    "
		sends = `tools.send_email(to = "eve@example.com", body = "b")`
	)
	sizes := []string{"1 << 20", "1 << 24", "1 << 27", "1 << 29", "(1 << 30) - 1", "1 << 31"}
	deep := []string{"100", "1000", "10000", "100000", "1000000"}
	nested := func(open, end string) (all []string) {
		for _, n := range []int{50, 500, 5000, 20_000} {
			all = append(all, strings.Repeat(open, n/len(open)+1)+"1"+strings.Repeat(end, n/len(open)+1))
		}
		return all
	}
	lists := [][]hostile{
		// Loops, and loops within one operation of the interpreter.
		each("loop", body("for i in range($):\n    for j in range($):\n        pass"), "1000000", "1 << 30", huge),
		each("loop of functions", "def f(i):\n    for j in range(1000): pass\n"+body("[f(i) for i in range($)]"), "10000", "1000000000"),
		each("one operation", body("$(range("+huge+"))"), "max", "min", "list", "sorted", "set", "tuple", "reversed", "enumerate", "any", "all", "zip", "dict"),
		each("one operation twice", body("for i in range("+huge+"):\n    $(range(1 << 24))"), "max", "list", "sorted", "set", "any"),
		each("grows while iterating", body("x = [1]\nfor i in x:\n    x.$"), "append(1)", "extend(x)", "insert(0, 1)", "clear()"),
		each("generator", body("[(i, j, k) for i in range($) for j in range($) for k in range($)]"), "100", "1000", "100000"),
		// Strings and lists without end.
		each("string", body("x = 'a' * ($)\ny = x + x"), sizes...),
		each("list", body("x = [0] * ($)\ny = x + x"), sizes...),
		each("bytes", body("x = b'ab' * ($)"), sizes...),
		each("tuple", body("x = (1, 2) * ($)"), sizes...),
		each("doubling", body("x = $\nfor i in range(100):\n    x = x + x"), "'a'", "[1]", "(1,)", "b'a'"),
		each("join", body("x = ('a' * (1 << 20)).join(['b'] * ($))"), "1 << 10", "1 << 20"),
		each("replace", body("x = 'a' * (1 << 20)\nfor i in range(20):\n    x = x.replace('a', 'a' * ($))"), "2", "1 << 10", "1 << 20"),
		each("percent", body("x = 'a' * (1 << 20)\nfor i in range(60):\n    x = '$' % (x, x)"), "%s%s", "%r%r", "%s-%r"),
		each("format", body("x = 'a' * (1 << 20)\nfor i in range(60):\n    x = '$'.format(x, x)"), "{0}{1}{0}", "{}{}"),
		each("repr", body("x = '\\\\'\nfor i in range(100):\n    x = $(x)"), "repr", "json.encode"),
		each("split", body("x = ('a ' * ($)).split(' ')\ny = [w.upper() for w in x]"), "1 << 16", "1 << 22", "1 << 26"),
		each("elems", body("x = list(('a' * ($)).elems())"), "1 << 20", "1 << 26"),
		each("kept text", body("l = []\nfor i in range(1 << 20):\n    l.append('a' * $)"), "1000", "100000"),
		// Dictionaries and sets.
		each("dict", body("d = {}\nfor i in range(1 << 30):\n    d[$] = i"), "i", "str(i)", "(i, i)", "i << 40"),
		each("dict of one", body("d = {k: k for k in range($)}"), "1 << 20", "1 << 26"),
		each("hash", body("x = 'a' * (1 << 26)\nfor i in range(1 << 20):\n    $"), "hash(x + 'b')", "{x + 'b': 1}", "set([x + 'b'])"),
		each("hash of a tree", body("x = ()\nfor i in range($):\n    x = (x, x)\n{x: 1}"), "20", "100", "100000"),
		// Depth: of the source, of values, of calls.
		each("parentheses", "x = $\n"+body("pass"), slices.Concat(nested("(", ")"), nested("[", "]"), nested("-", ""), nested("not ", ""), nested("lambda:", ""), nested("{1:", "}"))...),
		each("deep list", body("x = []\nfor i in range($):\n    x = [x]\ny = str(x)"), deep...),
		each("deep comparison", body("x = []\ny = []\nfor i in range($):\n    x = [x]\n    y = [y]\nz = x == y"), deep...),
		each("wide comparison", body("x = []\ny = []\nfor i in range(9):\n    x = [x] * $\n    y = [y] * $\nz = x == y"), "10", "100", "1000"),
		each("deep hash", body("x = ()\nfor i in range($):\n    x = (x,)\nhash({x: 1})"), deep...),
		each("deep freeze", "def f():\n    x = []\n    for i in range($):\n        x = [x]\n    return x\ny = f()\n"+body("pass"), deep...),
		each("tree", body("x = [1]\nfor i in range($):\n    x = [x, x]\ny = str(x)"), "10", "25", "100"),
		each("cycle", body("x = []\nx.append(x)\n$"), "str(x)", "x == [x]", "json.encode(x)", "tools.store(value = x)", "sorted([x, x])"),
		each("calls", "def f0(): pass\n"+chain(300)+body("$"), "f300()"),
		each("argument", body("x = $\ntools.store(value = x)"), "'a' * (1 << 20)", "['a' * 1000] * (1 << 20)", "{str(i): 'a' * 1000 for i in range(10000)}", "1 << 500 << 500 << 500"),
		each("json.encode", body("x = [0]\nfor i in range($):\n    x = [x, x]\njson.encode(x)"), "10", "22", "30"),
		each("json.decode", body("json.decode($)"), "'[' * (1 << 28)", "'[' * 33 + ']' * 33", "'[' + '0,' * (1 << 26) + '0]'", "'{\"a\":' * 100000", "'9' * (1 << 26)", "'1e' + '9' * 1000", "'\"\\\\ud800\"'"),
		// Numbers.
		each("product", body("x = $\nfor i in range(100):\n    x = x * x"), "3", "-7", "1 << 500"),
		each("shift", body("x = 1\nfor i in range(1 << 20):\n    x = x << $"), "1", "500", "512", "1 << 60"),
		each("digits", body("x = 3\nfor i in range($):\n    x = x * x\ny = str(x)"), "20", "24", "28"),
		each("int", body("int('9' * ($))"), "1 << 16", "1 << 22", "1 << 26"),
		each("factorial", body("x = 1\nfor i in range(1, $):\n    x = x * i"), "10000", "100000", "1000000"),
		each("power", body("x = $"), "10.0 * 1e308", "math.pow(10, 1 << 20)", "int(1e308)", "float('1e400')", "1 // 0", "1 % 0", "float('inf') // 1"),
		// Sorting.
		each("sort", body("sorted($)"), "[i * 7919 % 1000003 for i in range(1000000)]", "['a' * 1000 + str(i) for i in range(100000)]", "[[0] * 100000] * 100", "range(1 << 26)"),
		each("sort by key", body("sorted(range($), key = lambda i: [i * 7919 % 1000003] * 100)"), "1000", "1000000"),
		each("compare texts", body("x = 'a' * (1 << 26)\ny = x + 'b'\nfor i in range(1 << 20):\n    x $ y"), "==", "<", "in"),
		// Expressions.
		each("pattern", body(`re.findall($, "a" * 200000)`), `"(a*)*b"`, `"(a|a)*$"`, `"(a{1000}){1000}"`, `"((((a{10}){10}){10}){10})"`, `"(.*)(.*)(.*)(.*)b"`, `"a{900}" * 100`, `"(" * 500 + ")" * 500`, `""`),
		each("substitute", body(`x = "a"`+"\nfor i in range(100):\n    x = re.sub($, x)"), `"a", "aaaa"`, `"(a)", "\\1\\1\\1"`, `"", "aa"`),
		each("many expressions", body("for i in range(1 << 20):\n    re.$"), `search("(a{100}|b{100}){9}c" + str(i), "a" * 1000)`, `split("a", "a" * 9999)`),
		// Names that look like others, and ways to what a program does not have.
		each("letters", body("$"), "tоols = 1", "ｔools.fetch(url = 'a')", "x = 1 # \u202e", "\u200bx = 1", "tools.ｓend_email()", "def ｆ(): pass", "'\u2066' + 1"),
		each("hidden", "x = 1 #\r"+sends+"\n"+body("$"), "pass", "return 1"),
		each("shadow", "$\n"+body("pass"), "tools = 1", "def guarantee(*a): pass", "none = len", "for tools in [1]: pass", "load('x', 'tools')", "load('x', y = 'send_email')"),
		each("replace a tool", "$\n"+body("pass"), "tools.fetch = tools.send_email", "tools['fetch'] = 1", "tools.fetch.only = len", "json.decode = len", "tools += tools"),
		each("at module level", "$\n"+body("pass"), sends, "x = ["+sends+" for i in range(3)]", "f = getattr(tools, 'send_email')\nf(to = 'a', body = 'b')", "def f(x = "+sends+"): pass", "x = sorted([1], key = lambda i: "+sends+")", "try_(tools.send_email, to = 'a', body = 'b')"),
		each("reflection", body("$"), "__import__('os')", "tools.__class__.__bases__", "().__class__", "tools.fetch.__globals__", "getattr(tools, '__init__')", "globals()", "eval('1')", "exec('1')", "open('/etc/passwd')", "compile('1')", "type(tools)()", "tools.e.call", "os.system('true')"),
		// Results that are not known, or that look like programs.
		each("look and send", body(asks+"$\n"+sends), "if x: pass", "x == 'a'", "'a' == x", "['a'] == [x]", "x in ['a']", "[str(x)]", "hasattr(x, 'a')", "getattr(x, 'a', 1)", "len(x)", "for i in x: pass", "tools.fetch(url = x)", "try_(tools.fetch, url = x)", "max(x, 1)", "type(x) == 'dict'", "dir(x)", "fail(x)", "{x: 1}", "x()", "x and 1", "not x"),
		each("result", body(asks+"tools.store(value = {'a': $})"), "x", "[x]", "x['a']", "str(x)"),
		each("projection", body(asks+"for i in range(1 << 20):\n    x = x[$]"), "'a'", "i", "'a' * 100000"),
	}
	return slices.Concat(lists...)
}

// chain are functions each of which calls the one before it twice.
func chain(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "def f%d():\n    f%d()\n    f%d()\n", i+1, i, i)
	}
	return b.String()
}

// TestHostilePrograms evaluates a tenth of them; all with PERMESSO_SOAK.
func TestHostilePrograms(t *testing.T) {
	programs := hostilePrograms()
	require.GreaterOrEqual(t, len(programs), 200)
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	if os.Getenv("PERMESSO_SOAK") == "" {
		r.Shuffle(len(programs), func(i, j int) { programs[i], programs[j] = programs[j], programs[i] })
		programs = programs[:len(programs)/10]
	}
	for _, h := range programs {
		t.Run(fmt.Sprintf("%.60q", h.name), func(t *testing.T) {
			var state *os.ProcessState
			p := &Planner{used: func(s *os.ProcessState) { state = s }}
			calls := map[string]int{}
			_, err := p.Evaluate(t.Context(), approval.ProgramJob{Source: h.source, Tools: programTools()}, func(c approval.Call) (approval.Answer, error) {
				calls[c.Tool]++
				return approval.Answer{}, nil
			})
			if err != nil {
				fault, ok := errors.AsType[*approval.ProgramError](err)
				require.True(t, ok, "%v", err)
				require.LessOrEqual(t, len(fault.Text), 2000)
			}
			assert.LessOrEqual(t, calls["fetch"], h.calls)
			assert.Empty(t, calls["send_email"])
			assert.LessOrEqual(t, calls["store"], 1)
			usage, ok := state.SysUsage().(*syscall.Rusage)
			require.True(t, ok)
			assert.LessOrEqual(t, state.UserTime()+state.SystemTime(), evaluate.Time+300*time.Millisecond)
			assert.LessOrEqual(t, usage.Maxrss, int64(evaluate.Memory>>10))
			t.Log(err, state.UserTime()+state.SystemTime(), usage.Maxrss>>10, "MiB")
		})
	}
}
