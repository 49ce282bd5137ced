package facts

import (
	"path"
	"slices"
	"strings"
)

// Program is the name of the program that the command starts, without folders; ""
// if there is none. If the first word is open, Program is the word as written.
func (c SimpleCommand) Program() string {
	if len(c.Words) == 0 {
		return ""
	}
	return c.Words[0].program()
}

func (w Word) program() string {
	if w.Open || w.Text == "" {
		return w.Text
	}
	return path.Base(w.Text)
}

// starters are programs that start another one: their options that take a value, and
// how many arguments precede the other program.
var starters = map[string]struct {
	options string
	skip    int
}{
	"sudo": {"-u -g -h -p -C -r -t -T -U -D -R", 0}, "doas": {"-u -C", 0}, "pkexec": {"--user", 0}, "env": {"-u -C", 0},
	"nice": {"-n", 0}, "ionice": {"-c -n -p", 0}, "nohup": {}, "time": {"-o -f", 0}, "timeout": {"-s -k", 1}, "setsid": {},
	"xargs": {"-I -n -P -L -d -a -E -s", 0}, "exec": {"-a", 0}, "command": {}, "builtin": {}, "stdbuf": {"-i -o -e", 0},
	"chroot": {"", 1}, "flock": {"-w -E", 1}, "strace": {"-o -e -p -s", 0}, "watch": {"-n", 0},
	"busybox": {}, "toybox": {},
	"unshare": {}, "nsenter": {"-t", 0}, "runuser": {"-u -g", 0}, "parallel": {"-j", 0}, "caffeinate": {}, "unbuffer": {},
}

// maxStarted bounds how many programs that start another one are followed.
const maxStarted = 20

// Programs lists the programs that the command starts: the first word, and what
// sudo, env, xargs, find -exec and their like start, as far as that can be told.
func (c SimpleCommand) Programs() (all []Word) {
	for _, words := range c.Invocations() {
		all = append(all, words[0])
	}
	return all
}

// Invocations lists the programs that the command starts, each with its arguments.
func (c SimpleCommand) Invocations() (all [][]Word) {
	next := [][]Word{c.Words}
	for len(next) > 0 {
		words := next[0]
		next = next[1:]
		if len(words) == 0 {
			continue
		}
		if all = append(all, words); len(all) == maxStarted {
			return append(all, []Word{{Text: "…", Open: true}})
		}
		name := strings.ToLower(words[0].program()) // some systems find SUDO
		s, starts := starters[name]
		switch {
		case name == "find":
			next = append(next, executed(words)...)
		case peers[name]:
			next = append(next, served(words[1:])...)
		case starts:
			next = append(next, started(words[1:], strings.Fields(s.options), s.skip))
		}
	}
	return all
}

// started drops the options of a program that starts another one.
func started(words []Word, options []string, skip int) []Word {
	for len(words) > 0 {
		text := words[0].Text
		switch {
		case slices.Contains(options, text):
			words = words[min(2, len(words)):]
		case strings.HasPrefix(text, "-"), isAssignment(text):
			words = words[1:]
		case skip > 0:
			words, skip = words[1:], skip-1
		default:
			return words
		}
	}
	return nil
}

func isAssignment(s string) bool {
	name, _, ok := strings.Cut(s, "=")
	return ok && name != "" && only(name, "_")
}

// executed lists the programs behind find's -exec, with all words behind them.
func executed(words []Word) (all [][]Word) {
	for i, w := range words[:len(words)-1] {
		switch w.Text {
		case "-exec", "-execdir", "-ok", "-okdir":
			all = append(all, words[i+1:])
		}
	}
	return all
}

// peers connect to another host, and can let it use a program.
var peers = setOf("nc ncat netcat socat")

// served lists the programs that a peer starts for the other host: -e sh, --exec=sh, EXEC:sh.
func served(words []Word) (all [][]Word) {
	for i, w := range words {
		flag := strings.HasPrefix(w.Text, "-") && !strings.HasPrefix(w.Text, "--")
		option, value, joined := strings.Cut(w.Text, "=")
		kind, run, colon := strings.Cut(w.Text, ":")
		at := strings.IndexAny(w.Text, "ec") + 1
		switch long := slices.Contains([]string{"--exec", "--sh-exec", "--lua-exec"}, option); {
		case colon && slices.Contains([]string{"exec", "system", "shell"}, strings.ToLower(kind)):
			all = append(all, []Word{{Text: run, Open: w.Open}})
		case long && joined:
			all = append(all, []Word{{Text: value, Open: w.Open}})
		case flag && at > 0 && at < len(w.Text):
			all = append(all, []Word{{Text: w.Text[at:], Open: w.Open}})
		case (long || flag && at > 0) && i+1 < len(words):
			all = append(all, words[i+1:])
		}
	}
	return all
}

// ServesPeer is the program that the command starts for another host, "" if there is none.
func (c SimpleCommand) ServesPeer() string {
	all := c.Programs()
	i := slices.IndexFunc(all, func(w Word) bool { return peers[w.program()] })
	if i < 0 || i+1 == len(all) {
		return ""
	}
	return all[i+1].Text
}

// shells read commands from their input, and from the argument after -c.
var shells = setOf(`sh bash dash ash zsh fish ksh mksh pdksh csh tcsh rbash sash busybox toybox elvish nu pwsh
	powershell xonsh slsh posh yash osh ysh wish tclsh tasksh jjs jshell`)

// interpreters read programs from their input.
var interpreters = setOf(`python python2 python3 pypy perl ruby irb node nodejs deno bun php lua luajit rscript r julia
	awk gawk mawk ghci scala groovy osascript expect sqlite3 psql mysql mariadb ed ex at batch parallel`)

// elevators run programs as another user.
var elevators = setOf("sudo doas su pkexec runuser run0 sg newgrp")

// evaluators run their arguments, or a file, inside the shell.
var evaluators = setOf("eval source . trap")

// connectors use the network.
var connectors = setOf(`curl wget git ssh scp sftp rsync nc ncat netcat socat telnet ftp tftp http https xh aria2c lynx
	w3m openssl dig nslookup host ping mosh rclone aws gsutil gcloud az kubectl docker podman pip pip3 npm npx yarn pnpm
	go cargo gem apt apt-get dnf yum apk brew mail sendmail swaks`)

func setOf(words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}

// IsShell says whether a program, with or without folders, is a shell.
func IsShell(name string) bool { return shells[strings.ToLower(path.Base(name))] }

// IsInterpreter says whether a program runs what it reads: a shell, or an
// interpreter, with or without a version.
func IsInterpreter(name string) bool {
	name = strings.ToLower(path.Base(name))
	return shells[name] || shells[strings.TrimRight(name, "0123456789.-")] || interpreters[name] || interpreters[strings.TrimRight(name, "0123456789.-")]
}

// starts says which of the command's programs is one of these, "" if none is.
func (c SimpleCommand) starts(is func(string) bool) string {
	for _, w := range c.Programs() {
		if name := w.program(); is(name) {
			return name
		}
	}
	return ""
}

// Elevates is the program that runs the command as another user, "" if none does.
func (c SimpleCommand) Elevates() string {
	return c.starts(func(s string) bool { return elevators[s] })
}

// Evaluates is eval or its like, "" if the command is none.
func (c SimpleCommand) Evaluates() string {
	return c.starts(func(s string) bool { return evaluators[s] })
}

// Connects is the program that uses the network, "" if none is known to.
func (c SimpleCommand) Connects() string {
	for _, w := range c.Programs() {
		if name := w.program(); connectors[name] && (name != "git" || c.gitConnects(w)) {
			return name
		}
	}
	return ""
}

// gitConnects says whether git, which is the word git, is told to use the network. Equal
// words cannot be told apart: each may be it.
func (c SimpleCommand) gitConnects(git Word) bool {
	n := 0
	for i, w := range c.Words {
		if w != git {
			continue
		}
		if n++; n > maxStarted || connects(c.Words[i+1:]) {
			return true
		}
	}
	return false
}

// gitNetwork are the subcommands of git that use the network.
var gitNetwork = setOf(`clone fetch pull push ls-remote submodule lfs svn p4 send-email imap-send fetch-pack send-pack
	http-fetch http-push daemon`)

// gitOptions are the options before a subcommand that take a value.
var gitOptions = strings.Fields("-C -c --git-dir --work-tree --namespace --config-env --attr-source")

// connects says whether git with these words uses the network. An alias may be anything.
func connects(words []Word) bool {
	rest := started(words, gitOptions, 0)
	options := words[:len(words)-len(rest)]
	switch {
	case slices.ContainsFunc(options, func(w Word) bool { return w.Open || strings.Contains(strings.ToLower(w.Text), "alias.") }):
		return true
	case len(rest) == 0:
		return false
	}
	name, args := rest[0].Text, rest[1:]
	given := func(options ...string) bool {
		return slices.ContainsFunc(args, func(w Word) bool { return w.Open || slices.Contains(options, w.Text) })
	}
	switch name {
	case "remote":
		return given("update", "show", "prune", "set-head", "-f", "--fetch")
	case "archive": // git takes the beginning of an option
		return given() || slices.ContainsFunc(args, func(w Word) bool { return strings.HasPrefix(w.Text, "--rem") })
	}
	return rest[0].Open || gitNetwork[name]
}

// Interprets is the shell or interpreter that runs what another command writes, or a
// text of the line, "" if there is none.
func (c SimpleCommand) Interprets() string {
	input := func(r Redirect) bool { return strings.HasPrefix(r.Op, "<") }
	reads := c.From >= 0 || slices.ContainsFunc(c.Redirects, input) ||
		slices.ContainsFunc(c.Words, func(w Word) bool { return strings.HasPrefix(w.Text, "<(") })
	if !reads {
		return ""
	}
	return c.starts(func(s string) bool { return IsInterpreter(s) || evaluators[s] })
}

// scriptsOf lists the words of a command that are shell scripts.
func scriptsOf(c SimpleCommand) (all []Word) {
	switch n := len(c.Words); {
	case n < 2:
	case c.Program() == "eval":
		return joinedWords(c.Words[1:])
	case c.Program() == "trap":
		return c.Words[1:2]
	}
	for _, a := range c.aliases() {
		_, value, _ := strings.Cut(a.Text, "=")
		all = append(all, Word{Text: value, Open: a.Open})
	}
	if len(all) > 0 {
		return all
	}
	i := slices.IndexFunc(c.Words, func(w Word) bool {
		name := strings.ToLower(w.program())
		return IsShell(w.Text) || IsShell(strings.TrimRight(name, "0123456789.-")) || name == "su" || name == "runuser"
	})
	if i < 0 {
		return nil
	}
	for j, w := range c.Words[i+1:] {
		script := i + j + 2
		if isScriptFlag(w.Text) && script < len(c.Words) {
			return c.Words[script : script+1]
		}
	}
	for _, r := range c.Redirects {
		if r.text() {
			all = append(all, r.To)
		}
	}
	return all
}

// aliases are the words NAME=value of an alias.
func (c SimpleCommand) aliases() (all []Word) {
	for _, p := range c.Programs() {
		if p.program() == "alias" {
			all = slices.DeleteFunc(slices.Clone(after(c.Words, p)), func(w Word) bool { return !strings.Contains(w.Text, "=") })
		}
	}
	return all
}

// joinedWords is one word that eval makes of several.
func joinedWords(words []Word) []Word {
	if len(words) == 1 {
		return words
	}
	texts, open := make([]string, len(words)), false
	for i, w := range words {
		texts[i] = w.Text
		open = open || w.Open
	}
	return []Word{{Text: strings.Join(texts, " "), Open: open}}
}

// isScriptFlag says whether a flag of a shell announces a script: -c, -lc, --command.
func isScriptFlag(s string) bool {
	return s == "--command" || len(s) > 1 && s[0] == '-' && s[1] != '-' && strings.Contains(s, "c")
}

// Writes lists the files that the command is told to write: by a redirect, by tee, by
// dd, or by an option of curl or wget.
func (c SimpleCommand) Writes() (files []Word) {
	for _, r := range c.Redirects {
		if r.Writes() {
			files = append(files, r.To)
		}
	}
	for _, p := range c.Programs() {
		files = append(files, written(p.program(), after(c.Words, p))...)
	}
	return files
}

// after returns the words behind w.
func after(words []Word, w Word) []Word {
	i := slices.Index(words, w)
	return words[i+1:]
}

func written(program string, words []Word) (files []Word) {
	for i := range words {
		if file, is := writtenFile(program, words, i); is {
			files = append(files, file)
		}
	}
	return files
}

// writtenFile is the file that a word tells a program to write.
func writtenFile(program string, words []Word, i int) (file Word, is bool) {
	w := words[i]
	_, value, _ := strings.Cut(w.Text, "=")
	switch {
	case program == "tee" && !strings.HasPrefix(w.Text, "-"):
		return w, true
	case program == "dd" && strings.HasPrefix(w.Text, "of="):
		return Word{Text: value, Open: w.Open}, true
	case program != "curl" && program != "wget":
	case i > 0 && slices.Contains([]string{"-o", "-O", "--output", "--output-document"}, words[i-1].Text) &&
		(program == "wget" || words[i-1].Text != "-O"):
		return w, true
	case strings.HasPrefix(w.Text, "--output=") || strings.HasPrefix(w.Text, "--output-document="):
		return Word{Text: value, Open: w.Open}, true
	}
	return Word{}, false
}

// Places lists the words that say what the command starts and where it acts: its programs,
// the files that it is told to write or to delete, and its hosts. None of them may be masked.
func (c SimpleCommand) Places() []Word {
	all := c.Programs()
	for _, d := range c.Deletes() {
		for _, w := range d.Files {
			if slices.Contains(c.Words, w) {
				all = append(all, w)
			}
		}
	}
	for _, p := range all {
		words := after(c.Words, p)
		for i := range words {
			if _, is := writtenFile(p.program(), words, i); is {
				all = append(all, words[i])
			}
		}
	}
	program := c.Connects()
	for _, w := range slices.Concat(c.Words, c.Assigns) {
		host := namelessHost(w.Text) || program != "" && bareHost(w.Text, program) != ""
		if host && !slices.Contains(all, w) {
			all = append(all, w)
		}
	}
	return all
}

// namelessHost says whether the host of a word's URL has no dot: all of it may be one token.
func namelessHost(s string) bool {
	host := urlHost(s)
	return host != "" && !strings.Contains(host, ".")
}

// Hosts lists the hosts of the URLs in the command's words, and, if it uses the
// network, those that stand there without a scheme. A host that cannot be told, or is not
// ASCII, is given as written.
func (c SimpleCommand) Hosts() (hosts []string) {
	put := func(h string) {
		if h != "" && !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	for _, w := range slices.Concat(c.Words, c.Assigns) {
		put(urlHost(w.Text))
	}
	for _, r := range c.Redirects {
		put(deviceHost(r.To.Text))
		put(urlHost(r.To.Text))
	}
	if program := c.Connects(); program != "" {
		programs := c.Programs()
		for _, w := range c.Words[1:] {
			if !slices.Contains(programs, w) {
				put(bareHost(w.Text, program))
			}
		}
	}
	return hosts
}

// urlHost is the host behind :// in a word.
func urlHost(s string) string {
	_, rest, ok := strings.Cut(s, "://")
	if !ok {
		return ""
	}
	if i := strings.IndexAny(rest, "/?#\"' \t\n);,"); i >= 0 {
		rest = rest[:i]
	}
	authority := rest[strings.LastIndexByte(rest, '@')+1:]
	if host, ok := HostIn(authority); ok {
		return host
	}
	if HostPlace(authority).Written != "" {
		return authority
	}
	return rest
}

// deviceHost is the host of bash's /dev/tcp/HOST/PORT.
func deviceHost(s string) string {
	for _, prefix := range []string{"/dev/tcp/", "/dev/udp/"} {
		if rest, ok := strings.CutPrefix(s, prefix); ok {
			return strings.Replace(rest, "/", ":", 1)
		}
	}
	return ""
}

// Programs that take a host without a scheme, by how it is recognized.
var (
	takeName  = setOf("ssh nc ncat netcat telnet ping ftp sftp mosh") // any word
	takeDots  = setOf("curl wget http https xh")                      // a word with a dot
	takeColon = setOf("scp rsync git socat")                          // a word with a colon
)

// bareHost is the host of a word without a scheme, "" if it has none:
// user@host:path, host/path, host:port.
func bareHost(s, program string) string {
	if s == "" || strings.ContainsRune("-/.", rune(s[0])) || strings.Contains(s, "://") {
		return ""
	}
	if program == "socat" {
		if s = socatHost(s); s == "" {
			return ""
		}
	}
	_, rest, user := strings.Cut(s, "@")
	if !user {
		rest = s
	}
	name, _, _ := strings.Cut(rest, "/")
	before, _, colon := strings.Cut(name, ":")
	host, ok := HostIn(name)
	if !ok {
		host, ok = HostIn(before)
	}
	if p := HostPlace(name); !ok && p.Written != "" {
		host, ok, before = name, true, p.Host
	}
	named := takeName[program] && strings.Trim(s, "0123456789") != ""
	if ok && (user || named || takeDots[program] && strings.Contains(before, ".") || takeColon[program] && colon) {
		return host
	}
	return ""
}

// socatHost is what follows the kind of an address: TCP:host:port,option.
func socatHost(s string) string {
	kind, rest, _ := strings.Cut(s, ":")
	kind, _, _ = strings.Cut(strings.ToUpper(kind), "-")
	if !slices.Contains([]string{"TCP", "UDP", "SSL", "OPENSSL", "SCTP", "SOCKS", "PROXY"}, strings.Trim(kind, "456A")) {
		return ""
	}
	rest, _, _ = strings.Cut(rest, ",")
	return rest
}

// Open says whether it is decided when the line runs which programs the command starts.
func (c SimpleCommand) Open() bool {
	return slices.ContainsFunc(c.Programs(), func(w Word) bool { return w.Open })
}

// Sets lists the names of the variables that the command sets.
func (c SimpleCommand) Sets() (names []string) {
	for _, a := range c.Assigns {
		name, _, _ := strings.Cut(a.Text, "=")
		names = append(names, strings.TrimSuffix(name, "+"))
	}
	return names
}

// SetsSearch says whether it sets a variable that decides which programs or
// libraries others load.
func (c SimpleCommand) SetsSearch() bool {
	return slices.ContainsFunc(c.Sets(), func(name string) bool {
		family, _, _ := strings.Cut(name, "_")
		return searched[name] || slices.Contains([]string{"LD", "DYLD", "GIT"}, family)
	})
}

var searched = setOf(`PATH IFS ENV BASH_ENV SHELL SHELLOPTS PS4 PROMPT_COMMAND EDITOR VISUAL PAGER PYTHONPATH
	PYTHONSTARTUP PERL5LIB PERL5OPT RUBYLIB RUBYOPT NODE_OPTIONS NODE_PATH JAVA_TOOL_OPTIONS LESSOPEN`)

// Arguments lists the words in the line that no shell runs: arguments, values of
// variables, and input, but for programs, scripts, and places.
func (s Shell) Arguments() (all []Word) {
	nested := s.nestedAt()
	for i, c := range s.Commands {
		words := slices.Concat(c.Words, c.Assigns)
		for _, r := range c.Redirects {
			if r.text() {
				words = append(words, r.To)
			}
		}
		places := c.Places()
		for _, w := range words {
			at, _ := slices.BinarySearch(nested[i], w.Start)
			runs := at < len(nested[i]) && nested[i][at] < w.End
			if w.End > w.Start && !runs && !slices.Contains(places, w) {
				all = append(all, w)
			}
		}
	}
	return all
}

// nestedAt lists for each command where the commands in its words begin, in order.
func (s Shell) nestedAt() map[int][]int {
	at := map[int][]int{}
	for _, c := range s.Commands {
		for _, w := range slices.Concat(c.Assigns, c.Words) {
			if c.In >= 0 && w.End > 0 {
				at[c.In] = append(at[c.In], w.Start)
			}
		}
	}
	for _, starts := range at {
		slices.Sort(starts)
	}
	return at
}
