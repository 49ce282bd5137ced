package chat

import (
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/permesso-dev/permesso/approval"
)

// topic is what a question is about. Facts can answer these topics only.
type topic uint8

const (
	noTopic topic = iota
	aboutWhy
	aboutMail
	aboutPeople // recipients, by mail or in a chat
	aboutFiles
	aboutTables
	aboutHosts
	aboutMoney
)

// vocabulary is the closed set of words of one language that a known question
// consists of. A question with any other word may need facts that the gate does
// not have, so it goes to the agent. No word that decides is in the set:
// "approve it?" and "no" are never questions.
type vocabulary struct {
	asks    map[string]bool  // words that make a sentence a question
	whom    map[string]bool  // … about people
	why     map[string]bool  // … about the reasons for asking
	openers map[string]bool  // other words that a question can begin with
	fillers map[string]bool  // words without effect on the topic
	about   map[string]topic // words that name a topic
}

var vocabularies = sync.OnceValue(func() []vocabulary { return []vocabulary{englishVocabulary(), italianVocabulary()} })

func englishVocabulary() vocabulary {
	return vocabulary{
		asks: setOf("what which much many"), whom: setOf("who whom whose where"), why: setOf("why"),
		openers: setOf("how please tell show list can could exactly to from in on at by for"),
		fillers: setOf(`tell me show us list please can could you i exactly all any every does do did will would is are was were am be been being
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

// maxAnswered is how many values of a fact an answer lists. The rest is counted.
const maxAnswered = 30

// maxQuestion is the longest known question, in bytes.
const maxQuestion = 200

// topicsOf returns the sorted topics of a question, nil if text is not a question
// in known words.
func topicsOf(text string) []topic {
	if len(text) > maxQuestion {
		return nil
	}
	words := splitQuestion(text)
	if len(words) == 0 {
		return nil
	}
	for _, s := range vocabularies() {
		if found := s.topics(words); len(found) > 0 {
			return found
		}
	}
	return nil
}

func (s vocabulary) topics(words []string) (found []topic) {
	if w := words[0]; !s.asks[w] && !s.whom[w] && !s.why[w] && !s.openers[w] {
		return nil // "do it, which files?" is more than a question
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
		case !s.fillers[w]:
			return nil
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	switch {
	case why && len(found) == 0 && !asks:
		return []topic{aboutWhy}
	case why || !asks:
		return nil // only the agent knows why it chose these
	case slices.Contains(found, aboutMail) && !whom && !slices.Contains(found, aboutPeople):
		return nil // the question may be about the content of a mail
	}
	return found
}

// splitQuestion returns the words of one sentence in lower case, nil if text has a
// character that belongs to no word, or a second sentence.
func splitQuestion(text string) []string {
	text = strings.NewReplacer("e-mail", "email", "’", "'").Replace(strings.ToLower(text))
	text = strings.TrimRight(text, white+"?!.")
	foreign := func(r rune) bool { return !unicode.IsLetter(r) && !strings.ContainsRune(white+",'", r) }
	if strings.ContainsFunc(text, foreign) {
		return nil
	}
	return strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) })
}

// domains lists the domains of facts about a topic.
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

// factsAnswer answers the topics from facts. ok is false if the facts are not
// complete. Then claimed says that an unverified proof mentions a topic.
func (r renderer) factsAnswer(about []topic) (text string, claimed, ok bool) {
	var of []approval.DomainEvidence
	ok = len(about) > 0
	for _, t := range about {
		found := false
		for _, d := range r.p.Facts.ByDomain() {
			if !slices.Contains(t.domains(), d.Domain) {
				continue
			}
			claimed = claimed || len(d.Claimed)+len(d.Promised) > 0
			if !r.complete(&d) {
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
	return strings.Join(r.linesFor(of), "\n"), false, true
}

// complete says whether all facts of a domain are known: either a verified proof
// says so, or the request runs no program and the gate could read every argument
// that the operator assigned to the domain.
func (r renderer) complete(d *approval.DomainEvidence) bool {
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

// linesFor returns the lines of these domains alone.
func (r renderer) linesFor(domains []approval.DomainEvidence) []string {
	var lines, host []string
	for _, d := range domains {
		for _, h := range d.Host {
			host = append(host, r.hostFact(h, maxAnswered))
		}
	}
	if len(host) > 0 {
		lines = append(lines, format(r.evidenceText.host, "facts", strings.Join(host, "; ")))
	}
	if line := r.verified(domains, false); line != "" {
		lines = append(lines, line)
	}
	if open := r.openPoints(domains); len(open) > 0 {
		lines = append(lines, format(r.evidenceText.unknown, "what", r.list(open, maxItems, "; ")))
	}
	return lines
}
