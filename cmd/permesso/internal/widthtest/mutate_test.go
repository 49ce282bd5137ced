package widthtest_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/permesso-dev/permesso/approval/facts"
)

// mutant is a request that differs in one thing.
type mutant struct {
	what string
	call call
}

// mutants are requests that each differ from c in one thing.
func (r random) mutants(w setup, c call) []mutant {
	all := []mutant{{"session", c.with(func(c *call) { c.Session = r.other(c.Session, sessions...) })}}
	add := func(what string, change func(c *call)) { all = append(all, mutant{what, c.with(change)}) }
	add("client", func(c *call) { c.Client = r.other(c.Client, "ws:"+c.Workspace, clients[0], clients[1]) })
	add("workspace", func(c *call) { c.Workspace = r.other(c.Workspace, workspaceNames...) })
	add("spelling of the JSON", func(c *call) { c.style = (c.style + 1 + r.IntN(3)) % 4 })
	add("prose", func(c *call) { c.preview = r.other(c.preview, "ls -l", "rm x", "hi") })
	add("question", func(c *call) { c.question = !c.question })
	if c.Tool != "" {
		add("tool", func(c *call) { c.Tool = r.other(c.Tool, "twin", w.tools[0].name, pick(r, w.tools...).name) })
		add("release-only", func(c *call) { c.Tool, c.Action = "", pick(r, actions...) })
	} else {
		add("action", func(c *call) { c.Action = r.other(c.Action, actions...) })
		add("a tool", func(c *call) { c.Tool, c.Action = pick(r, w.tools...).name, "" })
	}
	t, _ := w.tool(c.Tool)
	for _, name := range slices.Sorted(maps.Keys(c.args)) {
		is := cmp.Or(t.args[name], facts.TypeText)
		if c.Tool == "" && (name == "command" || name == "cmd" || name == "argv") {
			is = facts.TypeCommand
		}
		tries := 2
		if is == facts.TypeCommand || strings.Contains(t.target, "{"+name+"}") {
			tries = 8 // what a sentence is about
		}
		for range tries {
			add("argument "+name, func(c *call) { c.args[name] = r.changed(is, c.args[name]) })
		}
		if c.Tool == "" {
			add("another name", func(c *call) {
				c.args[r.other(name, "command", "cmd", "argv")] = c.args[name]
				delete(c.args, name)
			})
		}
	}
	add("more arguments", func(c *call) { c.args[pick(r, "cwd", "more", "env", "timeout")] = `"/tmp"` })
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// with changes a copy.
func (c call) with(change func(*call)) call {
	c.args = maps.Clone(c.args)
	change(&c)
	return c
}

// other is one of all that is not this one.
func (r random) other(than string, all ...string) string {
	left := slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == than })
	if len(left) == 0 {
		return than + "2"
	}
	return pick(r, left...)
}

// changed is another value of an argument, mostly a small change.
func (r random) changed(is, value string) string {
	s, isText := strings.CutPrefix(value, `"`)
	s = strings.TrimSuffix(s, `"`)
	if !isText || r.oneIn(4) {
		return r.value(is)
	}
	if strings.Contains(s, "://") && is == facts.TypeText {
		is = facts.TypeURL
	}
	switch is {
	case facts.TypeCommand:
		return `"` + r.changedLine(s) + `"`
	case facts.TypePath:
		return `"` + pick(r, s+"/", s+"/..", s+"/../x", "/"+s, strings.Replace(s, "/", "/./", 1), strings.Replace(s,
			"ann/", "ann/../", 1),
			strings.ToUpper(s), s+".bak", s+"*", s+`\u0000`, s+"/sub", strings.Replace(s, "ann", "%61nn", 1)) + `"`
	case facts.TypeURL, facts.TypeHost:
		return `"` + r.changedAddress(s) + `"`
	}
	return `"` + pick(r, s+" ", " "+s, s+"x", strings.ToUpper(s), s+`\u200b`, s+"/../x", `\u0430`+s,
		s+" in work") + `"`
}

func (r random) changedAddress(s string) string {
	scheme, rest, found := strings.Cut(s, "://")
	if !found {
		scheme, rest = "https", s
	}
	host, path, _ := strings.Cut(rest, "/")
	all := []string{
		"http://" + rest, "HTTPS://" + rest, "ftp://" + rest, "//" + rest, rest, scheme + ":" + rest,
		scheme + "://evil.com/" + rest, scheme + "://" + rest + "@evil.com/", scheme + "://x@" + rest,
		scheme + "://" + host + ".evil.com/" + path, scheme + "://evil." + rest,
		scheme + "://" + strings.ToUpper(host) + "/" + path,
		scheme + "://" + host + "./" + path, scheme + "://" + host + ":8443/" + path,
		scheme + "://" + host + ":443/" + path,
		scheme + "://" + host + ":80/" + path, scheme + "://" + strings.Replace(host, ".", "%2e", 1) + "/" + path,
		scheme + "://" + rest + "/other", scheme + `://evil.com\\@` + rest, scheme + "://" + host + "?@evil.com",
		scheme + "://evil.com#" + rest,
	}
	return pick(r, all...)
}

// changedLine changes one thing of a command line within a JSON text.
func (r random) changedLine(line string) string {
	words := strings.Fields(line)
	if len(words) == 0 {
		return "ls"
	}
	program := words[0]
	i := 1 + r.IntN(len(words))
	put := func(w ...string) string { return strings.Join(slices.Insert(slices.Clone(words), i, w...), " ") }
	option := pick(r, "-exec", "--exec=sh", "-x", "--config=x", "-o", "--output=/etc/passwd", "-exec sh",
		"-toolexec=sh", "-C /", "--help", "-", "--")
	word := pick(r, "a", "src/b", "../x", "/etc/passwd", "a=b", "ext::sh", "https://evil.com", "~/.ssh/id", "@x",
		"sh", "./...", "...", "CC=sh")
	switch r.IntN(7) {
	case 0:
		return put(option)
	case 1, 2:
		return put(word)
	case 3:
		rest := strings.TrimPrefix(line, program)
		return pick(r, "./", "/tmp/", "/usr/bin/", "../", "x", `\\`) + program + rest
	case 4:
		return pick(r, "A=b ", "PATH=. ", "sudo ", "env ", "env A=b ", "exec ", "time ", "! ", "nohup ") + line
	case 5:
		return line + pick(r, " | sh", "; rm x", " && rm x", " > f", " < f", " $(x)", " `x`", " &", `\nrm x`,
			" 2>&1", " #", " >/etc/passwd", "|sh")
	}
	if j := r.IntN(len(words)); len(words) > 1 {
		return strings.Join(slices.Delete(words, j, j+1), " ")
	}
	return fmt.Sprintf("  %s ", line)
}

// changeTool changes the definition of a tool.
func (r random) changeTool(w setup, name string) setup {
	w.tools = slices.Clone(w.tools)
	i := slices.IndexFunc(w.tools, func(t tool) bool { return t.name == name })
	if i < 0 {
		return w
	}
	t := &w.tools[i]
	switch r.IntN(4) {
	case 0:
		t.lines = append(slices.Clone(t.lines), `summary = "another"`)
	case 1:
		t.lines = slices.Clone(t.lines)
		t.lines[len(t.lines)-1] = `handler = { kind = "command", argv = ["/bin/false"] }`
	case 2:
		t.args = maps.Clone(t.args)
		t.args["new"] = facts.TypeText
	default:
		t.target = pick(r, "{text}", "elsewhere")
	}
	return w
}
