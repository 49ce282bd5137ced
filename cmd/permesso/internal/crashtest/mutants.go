package crashtest

import (
	"path"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc/crashfs"
	"github.com/permesso-dev/permesso/security/audit"
)

// mutant is the name of a removed part of the protocol. The zero mutant is the
// complete protocol.
type mutant string

// The mutants that are implemented here: in the file system, or in the store of the gate or
// of the decider.
const (
	noClaim           mutant = "R at all"
	lateClaim         mutant = "R before effect"
	noDuplicate       mutant = "duplicate check"
	noSlot            mutant = "slot exclusivity"
	noRecheck         mutant = "look for C before the other process acknowledges"
	noExpirySlot      mutant = "expiry through the slot"
	noPauseCheck      mutant = "pause check before a claim"
	noGrantFirst      mutant = "grant before acknowledging"
	noSync            mutant = "fdatasync before the acknowledgement and the effect"
	noSyncP           mutant = "fdatasync of P's commit"
	noSyncD           mutant = "fdatasync of D's commit"
	noSyncR           mutant = "fdatasync of R's commit"
	noSyncC           mutant = "fdatasync of C's commit"
	noSyncTask        mutant = "fdatasync of the commit of a task's handle"
	noTask            mutant = "a task's handle is kept before it is followed"
	noReplaySync      mutant = "fdatasync of the journal before replay applies it"
	noCommandReplay   mutant = "replay before a command line decides, daemon down"
	noReady           mutant = "ready: another process decides while the daemon still replays"
	noDecisionSync    mutant = "sync of D by the other process"
	noCheckpointSync  mutant = "syncfs before a segment is recycled"
	noStartSync       mutant = "syncfs after replay, before the mark"
	noPruneCheckpoint mutant = "prune: checkpoint first"
	noPruneSync       mutant = "prune: removals durable before the id is free"
	leftoversOnly     mutant = "missing S found without leftovers"
)

// ignores implements crashfs.Disk.Ignore.
func (w *sim) ignores(op crashfs.Op) bool {
	inJournal := path.Dir(op.Path) == layout.Journal() && op.Kind == crashfs.OpSync
	if op.Kind == crashfs.OpSyncFS && w.phase == replaying {
		w.phase = beginning
		return w.config.Mutant == noStartSync
	}
	switch w.config.Mutant {
	case noSync:
		return inJournal && w.phase == working
	case noReplaySync:
		return inJournal && w.phase == replaying
	case noCheckpointSync:
		return op.Kind == crashfs.OpSyncFS && w.phase == working
	case noDecisionSync:
		return op.Proc != "gate" && (path.Dir(op.Path) == layout.Decisions(workspace) || op.Path == layout.Decisions(workspace))
	}
	return false
}

// lockName implements two mutants: for other processes, the daemon is ready when it has the
// lease.
func (f simFS) lockName(name string) string {
	blind := f.w.config.Mutant == noReady || f.w.config.Mutant == noCommandReplay
	if blind && (f.Name() == "ann" || f.Name() == "bob") && name == layout.Ready() && f.w.phase == working {
		return layout.Lock()
	}
	return name
}

// unsyncedDocs are the documents whose commits are not synced.
var unsyncedDocs = map[mutant]approval.Doc{
	noSyncP: approval.DocPending, noSyncD: approval.DocDecision, noSyncR: approval.DocClaim, noSyncC: approval.DocRecord,
	noSyncTask: approval.DocTask,
}

// auditKeys are those of the log's heads.
func (w *sim) auditKeys() audit.Keys {
	if !w.flow.has("head") {
		return audit.Keys{}
	}
	verifier, err := w.config.signer.Verifier()
	if err != nil {
		panic(err)
	}
	return audit.Keys{Signer: w.config.signer.NoteSigner(), Known: verifier.Known()}
}

// removed is a part of the protocol that is removed. Without edits it is implemented here.
type removed struct {
	mutant
	first string // a flow in which a violation soon appears; the search goes on with all
	edits []edit // of the source, for mutants that no wrapper can make
}

// edit replaces a line in a source file, in which a call of mutated(NAME) is added.
type edit struct{ file, old, new string }

// allMutants lists every part without which a promise is broken: those of the model of the
// protocol, then some of what is around it.
func allMutants() []removed {
	return []removed{
		{mutant: noSync, first: "approve"},
		{mutant: noSyncP, first: "ann inside, bob outside"},
		{mutant: noSyncD, first: "approve"},
		{mutant: noSyncR, first: "approve"},
		{mutant: noSyncC, first: "deny"},
		{mutant: noReplaySync, first: "policy denies"},
		{mutant: "commit before files (files first)", first: "approve", edits: []edit{
			{"ipc/commit.go", "\twait, err := c.join()\n\tif err != nil {\n\t\treturn fmt.Errorf(\"commit: %w\", err)", "\tif mutated(NAME) {\n\t\tc.show()\n\t}\n\twait, err := c.join()\n\tif err != nil {\n\t\treturn fmt.Errorf(\"commit: %w\", err)"},
		}},
		{mutant: noCommandReplay, first: "approve"},
		{mutant: noReady, first: "approve"},
		{mutant: noRecheck, first: "slow decider"},
		{mutant: noDecisionSync, first: "approve outside"},
		{mutant: noCheckpointSync, first: "checkpoints"},
		{mutant: "checkpoint waits for the files of its commits", first: "checkpoint between", edits: []edit{
			{"ipc/lease.go", "\tfirst := uint64(math.MaxUint64)\n", "\tfirst := uint64(math.MaxUint64)\n\tif mutated(NAME) {\n\t\treturn first\n\t}\n"},
		}},
		{mutant: noStartSync, first: "submit allowed"},
		{mutant: "nonce per life", first: "recycled", edits: []edit{
			{"ipc/journal/journal.go", "\t_, _ = rand.Read(h.nonce[:])", "\tif !mutated(NAME) {\n\t\t_, _ = rand.Read(h.nonce[:])\n\t}\n"},
		}},
		{mutant: sharedBlock, first: "approve", edits: []edit{
			{"ipc/journal/format.go", "func inBlocks(n int64) int64 {", "func inBlocks(n int64) int64 {\n\tif mutated(NAME) {\n\t\treturn (n + 7) / 8 * 8\n\t}\n"},
		}},
		{mutant: "no file for R, and a checkpoint that does not wait for C", first: "checkpoint while it runs", edits: []edit{
			{"ipc/commit.go", "\t\tswitch op.Doc {\n\t\tcase \"\", approval.DocDecision:\n", "\t\tif mutated(NAME) && op.Doc == approval.DocClaim {\n\t\t\tcontinue\n\t\t}\n\t\tswitch op.Doc {\n\t\tcase \"\", approval.DocDecision:\n"},
		}},
		{mutant: lateClaim, first: "approve"},
		{mutant: noClaim, first: "allow"},
		{mutant: "slot before commit", first: "both inside", edits: []edit{
			{"ipc/commit.go", "\tcase op.Doc == approval.DocDecision:\n\t\tif err := s.put(", "\tcase mutated(NAME) && op.Doc == approval.DocDecision:\n\t\treturn nil\n\tcase op.Doc == approval.DocDecision:\n\t\tif err := s.put("},
			{"ipc/commit.go", "\t\tswitch op.Doc {\n\t\tcase \"\", approval.DocDecision:\n", "\t\tif mutated(NAME) && op.Doc == approval.DocDecision {\n\t\t\t_ = s.put(s.path(op.Doc, op.Key), op.Bytes, store.Volatile)\n\t\t\tcontinue\n\t\t}\n\t\tswitch op.Doc {\n\t\tcase \"\", approval.DocDecision:\n"},
		}},
		{mutant: noExpirySlot, first: "submit and withdraw"},
		{mutant: "replay replaces what is torn or invalid", first: "approve", edits: []edit{
			{"ipc/replay.go", "\tcase err != nil:\n\t\treturn err\n\tcase p.kind == partLarge && valid:", "\tcase err != nil:\n\t\treturn err\n\tcase mutated(NAME) && !valid && len(b) > 0:\n\t\treturn nil\n\tcase p.kind == partLarge && valid:"},
		}},
		{mutant: "audit sequence check", first: "allow", edits: []edit{
			{"security/audit/complete.go", "\treturn c.write(wrongAt)\n", "\tif mutated(NAME) {\n\t\treturn c.appendLines(1)\n\t}\n\treturn c.write(wrongAt)\n"},
		}},
		{mutant: "cut of the log's torn tail", first: "allow", edits: []edit{
			{"security/audit/complete.go", "\treturn c.write(wrongAt)\n", "\tif mutated(NAME) {\n\t\tlast, err := lastSeq(c.fs, segmentPath(c.dir, 1))\n\t\tif err != nil {\n\t\t\treturn c.write(wrongAt)\n\t\t}\n\t\treturn c.appendLines(last + 1)\n\t}\n\treturn c.write(wrongAt)\n"},
		}},
		{mutant: "head only over committed entries", first: "head beside", edits: []edit{
			{"security/audit/write.go", "\tl.seq = e.Seq\n", "\tl.seq = e.Seq\n\tif mutated(NAME) {\n\t\tl.addLeaf(e.Seq, line[:len(line)-1])\n\t}\n"},
			{"security/audit/sign.go", "\tif err := l.Sync(); err != nil {\n", "\tif err := l.Sync(); err != nil && !mutated(NAME) {\n"},
			{"security/audit/audit.go", "\tif l.outstanding() {\n", "\tif l.outstanding() && !mutated(NAME) {\n"},
		}},
		{mutant: noPruneCheckpoint, first: "prune after a checkpoint"},
		{mutant: noPruneSync, first: "prune and approve again"},
		{mutant: leftoversOnly, first: "allow"},

		{mutant: noDuplicate, first: "duplicate intake"},
		{mutant: noSlot, first: "two deciders"},
		{mutant: noPauseCheck, first: "pause"},
		{mutant: noGrantFirst, first: "always"},
		{mutant: noTask, first: "task"},
		{mutant: noSyncTask, first: "task"},
		{mutant: "the claim of a step, before its effect", first: "program", edits: []edit{
			{"approval/gate/program_step.go", "\tif err := g.commitClaim(ctx, r); err != nil {\n", "\tif mutated(NAME) {\n\t\treturn nil\n\t}\n\tif err := g.commitClaim(ctx, r); err != nil {\n"},
		}},
		{mutant: "a step with a record does not run", first: "program", edits: []edit{
			{"approval/gate/program_step.go", "\tif rec != nil {\n\t\tif rec.Step == nil", "\tif rec != nil && !mutated(NAME) {\n\t\tif rec.Step == nil"},
		}},
		{mutant: "a step that was claimed does not run again", first: "program", edits: []edit{
			{"approval/gate/program_step.go", "\treturn r.rerun, err\n", "\treturn r.rerun || mutated(NAME), err\n"},
		}},
	}
}

// fromModel is how many of them the model has, too.
const fromModel = 28

// sharedBlock writes groups side by side: another reader of the journal could not read them.
const sharedBlock mutant = "new block for each write"

// helpers are files that the edited packages get.
var helpers = map[string]string{
	"approval/gate": "package gate\n" + mutatedSource,
	"ipc":           "package ipc\n" + mutatedSource,
	"ipc/journal":   "package journal\n" + mutatedSource,
	"security/audit": "package audit\n" + mutatedSource + `
// appendLines appends the journal's lines from a number on to the first segment.
func (c *completion) appendLines(from int64) error {
	f, err := c.fs.OpenFile(segmentPath(c.dir, 1), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	for i, line := range c.lines {
		if c.first+int64(i) >= from && err == nil {
			_, err = f.Write(line)
		}
	}
	return errors.Join(err, f.Close())
}
`,
}

const mutatedSource = `
import (
	"errors"
	"os"
)

var _ = errors.Join

func mutated(name string) bool { return os.Getenv("PERMESSO_MUTANT") == name }
`
