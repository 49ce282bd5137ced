package chat

import (
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/permesso-dev/permesso/approval"
)

// topic is what a question is about, as far as facts can answer it.
type topic uint8

const (
	noTopic topic = iota
	aboutWhy
	aboutMail
	aboutPeople // whoever it reaches, by mail or in a chat
	aboutFiles
	aboutTables
	aboutHosts
	aboutMoney
)

// speech are the words of one language that a question may be made of. It is a
// closed set: a question with any other word in it is about something that the
// facts may not know, and goes to the agent. No word that decides is among them, so
// that "approve it?" and "no" are never questions.
type speech struct {
	asks   map[string]bool  // words that make it a question
	whom   map[string]bool  // … about people
	why    map[string]bool  // … about the asking itself
	opens  map[string]bool  // words besides these that one can begin with
	joints map[string]bool  // words that change nothing
	about  map[string]topic // words that say what it is about
}

var speeches = sync.OnceValue(func() []speech { return []speech{englishSpeech(), italianSpeech()} })

func englishSpeech() speech {
	return speech{
		asks: setOf("what which much many"), whom: setOf("who whom whose where"), why: setOf("why"),
		opens: setOf("how please tell show list can could exactly to from in on at by for"),
		joints: setOf(`tell me show us list please can could you i exactly all any every does do did will would is are was were am be been being
			it this that these those they the a an of to in on by for from with at and how get gets got
			agent request program tool new there written write writes read reads changed change changes touched touch touches created create creates
			deleted delete deletes removed remove removes modified opened open opens accessed used use uses queried query sent send sends
			contacted contact contacts reached reach reaches called connected connect ask asked asking spent charged s`),
		about: topics(map[topic]string{
			aboutMail:   "email emails emailed mail mails mailed",
			aboutPeople: "recipient recipients receive receives received addressed messaged",
			aboutFiles:  "file files path paths folder folders directory directories",
			aboutTables: "table tables database databases",
			aboutHosts:  "host hosts server servers site sites website websites url urls",
			aboutMoney:  "money cost costs pay pays paid spend spends amount amounts price",
		}),
	}
}

func setOf(words string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(words) {
		set[w] = true
	}
	return set
}

func topics(of map[topic]string) map[string]topic {
	all := map[string]topic{}
	for t, words := range of {
		for w := range setOf(words) {
			all[w] = t
		}
	}
	return all
}

// maxAnswered is how many values of a fact an answer lists; the rest is counted.
const maxAnswered = 30

// longestQuestion is how many bytes a question has at most that is understood.
const longestQuestion = 200

// topicsOf are what a question asks for, sorted; none where it is no question that
// consists of words that we know.
func topicsOf(text string) []topic {
	if len(text) > longestQuestion {
		return nil
	}
	words := spoken(text)
	if len(words) == 0 {
		return nil
	}
	for _, s := range speeches() {
		if found := s.topics(words); len(found) > 0 {
			return found
		}
	}
	return nil
}

func (s speech) topics(words []string) (found []topic) {
	if w := words[0]; !s.asks[w] && !s.whom[w] && !s.why[w] && !s.opens[w] {
		return nil // "do it, which files?" is not only a question
	}
	asks, whom, why := false, false, false
	for _, w := range words {
		about, known := s.about[w]
		switch {
		case known:
			found = append(found, about)
		case s.why[w]:
			why = true
		case s.whom[w]:
			asks, whom = true, true
		case s.asks[w]:
			asks = true
		case !s.joints[w]:
			return nil
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	switch {
	case why && len(found) == 0 && !asks:
		return []topic{aboutWhy}
	case why || !asks:
		return nil // why just these is for the agent to say
	case slices.Contains(found, aboutMail) && !whom && !slices.Contains(found, aboutPeople):
		return nil // what stands in a mail is more than to whom it goes
	}
	return found
}

// spoken are the words of one sentence in lower case; none where there is any sign
// in it that belongs to no word, or a second sentence.
func spoken(text string) []string {
	text = strings.NewReplacer("e-mail", "email", "’", "'").Replace(strings.ToLower(text))
	text = strings.TrimRight(text, white+"?!.")
	strange := func(r rune) bool { return !unicode.IsLetter(r) && !strings.ContainsRune(white+",'", r) }
	if strings.ContainsFunc(text, strange) {
		return nil
	}
	return strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) })
}

// domains are those that facts about a topic stand in.
func (t topic) domains() []string {
	switch t {
	case aboutMail:
		return []string{approval.DomainMail}
	case aboutPeople:
		return []string{approval.DomainMail, "channel"}
	case aboutFiles:
		return []string{approval.DomainFile}
	case aboutTables:
		return []string{approval.DomainDatabase}
	case aboutHosts:
		return []string{approval.DomainHost}
	case aboutMoney:
		return []string{approval.DomainMoney}
	}
	return nil
}

// answer is what the facts say about the topics. ok is false where they do not say
// it completely: then claimed tells that an unverified proof speaks of it.
func (r renderer) answer(about []topic) (text string, claimed, ok bool) {
	var of []approval.DomainEvidence
	ok = len(about) > 0
	for _, t := range about {
		found := false
		for _, d := range r.p.Facts.ByDomain() {
			if !slices.Contains(t.domains(), d.Domain) {
				continue
			}
			claimed = claimed || len(d.Claimed)+len(d.Promised) > 0
			if !r.whole(&d) {
				ok = false
				continue
			}
			found = true
			of = append(of, d)
		}
		ok = ok && found
	}
	if !ok {
		return "", claimed, false
	}
	return strings.Join(r.saidOf(of), "\n"), false, true
}

// whole says whether a domain is known completely: a verified proof says so, or
// the gate could read all that the operator says is of it, of what is no program.
func (r renderer) whole(d *approval.DomainEvidence) bool {
	silent := slices.ContainsFunc(d.Gaps, func(g approval.ProofCoverage) bool { return g.Status == approval.SilentGap })
	if d.Known() && !silent {
		return true
	}
	if r.p.Facts.RunsProgram() || len(d.Host) == 0 || len(d.Unknown)+len(d.Gaps) > 0 {
		return false
	}
	return !slices.ContainsFunc(d.Host, func(h approval.HostFact) bool {
		return h.Left > 0 || h.From != approval.FromTemplate && h.From != approval.FromArgument
	})
}

// saidOf are the lines of these domains alone.
func (r renderer) saidOf(domains []approval.DomainEvidence) []string {
	var lines, host []string
	for _, d := range domains {
		for _, h := range d.Host {
			host = append(host, r.hostFact(h, maxAnswered))
		}
	}
	if len(host) > 0 {
		lines = append(lines, say(r.known.host, "facts", strings.Join(host, "; ")))
	}
	if line := r.verified(domains, false); line != "" {
		lines = append(lines, line)
	}
	if open := r.open(domains); len(open) > 0 {
		lines = append(lines, say(r.known.unknown, "what", r.list(open, maxSaid, "; ")))
	}
	return lines
}
