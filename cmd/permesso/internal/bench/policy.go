package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/security/policy"
	"github.com/permesso-dev/permesso/security/secrets"
)

// decision measures one ruling with 100 rules and 10,000 grants, without the scan
// for secrets, which is measured separately.
func (b *bench) decision() error {
	const rules, grants = 100, 10_000
	var c policy.Config
	for i := range rules {
		r := policy.Rule{Name: fmt.Sprint("r", i), Tool: fmt.Sprintf("tool%d*", i), Outcome: approval.Ask}
		if i%2 == 1 {
			r.Tool, r.Target, r.Outcome = "", fmt.Sprintf("/srv/%d/**", i), approval.Deny
		}
		c.Rules = append(c.Rules, r)
	}
	e := &policy.Engine{}
	if err := e.Load(c); err != nil {
		return err
	}
	now := time.Now()
	for i := range grants {
		target := fmt.Sprintf("/data/%d/**", i)
		if i%2 == 1 {
			target = fmt.Sprintf("/data/*/%d.txt", i)
		}
		if err := e.AddGrant(approval.Grant{
			Version: approval.Version, ID: fmt.Sprintf("%016x", i), Kind: approval.GrantTarget, Workspace: "w",
			Channel: "workspace", Sender: "w", Capability: "fs:write", TargetKind: "path_glob", Target: target,
			By: "bench", CreatedAt: now, ExpiresAt: now.Add(time.Hour),
		}); err != nil {
			return err
		}
	}
	f := approval.Facts{
		RequestID: "00000000000000aa", Workspace: "w", Autonomy: approval.Supervised, Tool: "store", KnownTool: true, ActionType: "custom:store",
		Capability: "fs:write", Target: "/data/9998/b.txt", ClientID: "ws:w", Channel: "workspace", Sender: "w", Now: now,
		Args: approval.Raw(`{"path":"/data/9998/b.txt","text":"Meeting at 5"}`),
	}
	if r := e.Judge(f); r.Outcome != approval.Allow {
		return fmt.Errorf("grant not used: %v", r.Reasons)
	}
	each := timePerRun(2000, func() { e.Judge(f) })
	b.add("decision, 100 rules and 10,000 grants", each.String(), "<= 20µs", each <= 20*time.Microsecond)
	return nil
}

// timePerRun returns the time of one of n runs, in the best of five rounds.
func timePerRun(n int, do func()) time.Duration {
	best := time.Duration(0)
	for range 5 {
		began := time.Now()
		for range n {
			do()
		}
		if each := time.Since(began) / time.Duration(n); best == 0 || each < best {
			best = each
		}
	}
	return best
}

// scan measures the scan for secrets in 4 KiB, without and with keywords of rules.
func (b *bench) scan() error {
	s, err := secrets.New()
	if err != nil {
		return err
	}
	plain := strings.Repeat("Dear Bob, we meet at five in the garden. ", 100)[:4096]
	words := plain[:2000] + " the api token and the secret key are in the password store, github auth " + plain[2073:]
	for _, row := range []struct {
		name, text string
		limit      time.Duration
	}{{"without a keyword", plain, time.Millisecond}, {"with keywords", words, 5 * time.Millisecond}} {
		f := &approval.Facts{Args: textArgs(row.text)}
		each := timePerRun(50, func() { s.Scan(f) })
		b.add("secret scan of 4 KiB, "+row.name, each.String(), "<= "+row.limit.String(), each <= row.limit)
	}
	return nil
}

// textArgs returns arguments with these texts.
func textArgs(texts ...string) approval.Raw {
	m := map[string]string{}
	for i, x := range texts {
		m[fmt.Sprint("f", i)] = x
	}
	v, err := json.Marshal(m)
	if err != nil {
		return nil
	}
	return v
}

// recall counts how many samples of the rules are found, in each form.
func (b *bench) recall() error {
	s, err := secrets.New()
	if err != nil {
		return err
	}
	forms := []struct {
		name string
		goal float64
		hide func(string) approval.Raw
	}{
		{"plain", 95, func(x string) approval.Raw { return textArgs(x) }},
		{"base64", 90, func(x string) approval.Raw { return textArgs(base64.StdEncoding.EncodeToString([]byte(x))) }},
		{"split over two fields", 90, func(x string) approval.Raw { return textArgs(x[:len(x)/2], x[len(x)/2:]) }},
		{"zero width", 90, func(x string) approval.Raw { return textArgs(x[:len(x)/2] + "\u200b" + x[len(x)/2:]) }},
		{"suppressing comment", 90, func(x string) approval.Raw { return textArgs(x + " # gitleaks:allow") }},
	}
	rnd := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same samples each time
	var all []string
	for _, r := range secrets.Rules() {
		for try, made := 0, 0; try < 30 && made < 3; try++ {
			if x, ok := r.Sample(rnd); ok {
				all = append(all, x)
				made++
			}
		}
	}
	for _, form := range forms {
		found := 0
		for _, x := range all {
			if len(s.Scan(&approval.Facts{Args: form.hide(x)})) > 0 {
				found++
			}
		}
		share := 100 * float64(found) / float64(len(all))
		b.add("secrets found, "+form.name, fmt.Sprintf("%.1f %% of %d", share, len(all)), fmt.Sprintf(">= %.0f %%", form.goal), share >= form.goal)
	}
	return b.falseAlarms(s)
}

const corpora = "../shared/corpora"

// falseAlarms counts harmless texts in which a secret is found. Without the corpora
// it adds no figure.
func (b *bench) falseAlarms(s *secrets.Scanner) error {
	var texts []string
	for _, dir := range []string{"replies", "mime"} {
		files, err := os.ReadDir(filepath.Join(corpora, dir))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, f := range files {
			text, err := os.ReadFile(filepath.Join(corpora, dir, f.Name()))
			if err != nil {
				return err
			}
			if len(text) < 256<<10 {
				texts = append(texts, string(text))
			}
		}
	}
	tldr, err := os.ReadFile(filepath.Join(corpora, "tldr-sample.txt"))
	if err != nil {
		return err
	}
	texts = append(texts, strings.Split(string(tldr), "\n")...)
	alarms := 0
	for _, x := range texts {
		if len(s.Scan(&approval.Facts{Args: textArgs(x)})) > 0 {
			alarms++
		}
	}
	share := 100 * float64(alarms) / float64(len(texts))
	b.add("secrets found where there are none", fmt.Sprintf("%.2f %% of %d", share, len(texts)), "<= 1 %", share <= 1)
	return nil
}
