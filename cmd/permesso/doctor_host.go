package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/watcher"
)

// checkDaemon finds out whether the gate is served, by whom, and whether it
// knows what we know.
func (d *doctor) checkDaemon(context.Context) []finding {
	// A lock that we created would be in the way of the daemon's own user.
	if _, err := os.Lstat(d.layout.Lock()); err != nil {
		return []finding{{Severity: worthKnowing, What: "not running, and never was", Cure: "permesso serve"}}
	}
	running, err := d.served()
	if err != nil {
		return foundAll(serious, "", err)
	}
	if d.running = running; !running {
		return []finding{{Severity: worthKnowing, What: "not running: approvals take effect when it starts", Cure: "permesso serve"}}
	}
	p, known := findDaemon(d.layout.Lock())
	list := append(d.reportedHealth(), d.unread(p.started)...)
	if !known {
		return orWell(list, "running; its process cannot be seen from here")
	}
	d.daemon = p.pid
	if p.replaced {
		list = append(list, finding{Severity: warning, What: fmt.Sprintf("process %d runs a program that was replaced since", p.pid), Cure: "restart permesso serve"})
	}
	if p.eatsSyncs {
		list = append(list, finding{
			Severity: warning, What: fmt.Sprintf("process %d has libeatmydata loaded or in LD_PRELOAD: what it runs may leave out its fsyncs", p.pid),
			Cure: "start permesso serve without it",
		})
	}
	return orWell(list, "running, process %d since %s", p.pid, p.started.Local().Format(time.DateTime))
}

// settleBy is how long a daemon may take to read what was edited.
const settleBy = 5 * time.Second

// unread says that the configuration was changed and not read since: the audit
// log tells when it was.
func (d *doctor) unread(started time.Time) []finding {
	info, err := os.Stat(d.file)
	if err != nil {
		return nil // built in, or the check of the configuration says why
	}
	read := started
	entries, err := audit.Last(d.fs, d.layout.Audit(), 1000)
	if err != nil {
		entries = nil // the check of the log says why
	}
	for _, e := range entries {
		if e.Event == approval.EventStarted || e.Event == approval.EventConfigured {
			read = e.Time
		}
	}
	if read.IsZero() || info.ModTime().Before(read.Add(settleBy)) {
		return nil
	}
	return []finding{{
		Severity: warning, What: "the gate has not read the configuration since it was changed, at " + info.ModTime().Local().Format(time.DateTime),
		Cure: "look at its log: a bad edit keeps the old one; or restart permesso serve",
	}}
}

// reportedHealth is what a daemon says of itself in run/health.json.
func (d *doctor) reportedHealth() (list []finding) {
	b, err := os.ReadFile(d.layout.Health())
	var h healthReport
	if err != nil || json.Unmarshal(b, &h) != nil {
		return nil // none is served
	}
	for _, p := range h.Problems {
		list = append(list, finding{Severity: warning, What: "the gate says of itself: " + oneLine(p.What), Cure: cmp.Or(oneLine(p.Hint), "permesso status, and the gate's log")})
	}
	if h.Status == healthPaused {
		list = append(list, finding{Severity: worthKnowing, What: "the gate is paused, at least in part: nothing runs there", Cure: "permesso resume"})
	}
	if h.Version != "" && h.Version != version {
		list = append(list, finding{
			Severity: warning, What: "the gate runs version " + oneLine(h.Version) + ", this is " + version,
			Cure: "restart permesso serve",
		})
	}
	return list
}

// scratch gives a folder of our own on the home's file system: among the
// working folders of commands, which every start empties. If one did so
// meanwhile, we try again.
func (d *doctor) scratch(use func(dir string) []finding) (list []finding) {
	for range 2 {
		dir, err := os.MkdirTemp(d.layout.Run(), "doctor-")
		if err != nil {
			return []finding{{What: "nothing can be written: " + oneLine(err.Error()), Cure: "look at the findings on folders and disk"}}
		}
		list = use(dir)
		_, gone := os.Lstat(dir)
		if err := os.RemoveAll(dir); err != nil {
			list = append(list, found(warning, "", err))
		}
		if gone == nil {
			break
		}
	}
	return list
}

// folderCount is how many folders serve watches.
func (d *doctor) folderCount() int { return 1 + 4*len(d.names) }

func (d *doctor) checkInotify(context.Context) []finding {
	list := foundAll(warning, "", watcher.CheckLimits(d.folderCount())...)
	for _, ws := range d.withFolders() {
		list = append(list, foundAll(warning, ws, watcher.CheckReach(d.layout.Requests(ws)))...)
	}
	list = append(list, d.scratch(func(dir string) []finding { return foundAll(warning, "", watcher.Try(dir)) })...)
	return orWell(list, "events come; the limits have room for %d folders", d.folderCount())
}

const (
	driftBy = 2 * time.Second // between our clock and that of the file system
	aheadBy = time.Minute     // of an entry before our clock
)

// checkClock holds the clock against the calendar, the log and the disk.
// Deadlines are compared with it.
func (d *doctor) checkClock(context.Context) []finding {
	var list []finding
	now := d.now
	if now.Year() < 2026 || now.Year() > 2100 {
		list = append(list, finding{What: "it is not " + now.Format(time.DateOnly) + ": receipts and deadlines would be wrong", Cure: "set the clock, then: timedatectl set-ntp true"})
	}
	if entries, err := audit.Last(d.fs, d.layout.Audit(), 1); err == nil && len(entries) == 1 && entries[0].Time.Sub(now) > aheadBy {
		list = append(list, finding{
			What: fmt.Sprintf("the clock was set back: the log's newest entry is of %s, it is %s",
				entries[0].Time.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339)),
			Cure: "set the clock; what had expired stays expired, and what waits would wait too long",
		})
	}
	list = append(list, d.scratch(checkDrift)...)
	if unsynchronised() {
		list = append(list, finding{Severity: worthKnowing, What: "nobody keeps the clock right", Cure: "timedatectl set-ntp true, or install chrony"})
	}
	return orWell(list, "%s, and the disk agrees", now.Format(time.RFC3339))
}

// checkDrift compares the time that a new file gets with ours.
func checkDrift(dir string) []finding {
	before := time.Now()
	name := filepath.Join(dir, "time")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		return foundAll(serious, "", err)
	}
	info, err := os.Stat(name)
	if err != nil {
		return foundAll(serious, "", err)
	}
	return drifted(before, info.ModTime())
}

func drifted(ours, disks time.Time) []finding {
	off := disks.Sub(ours).Abs()
	if off <= driftBy {
		return nil
	}
	return []finding{{
		Severity: warning, What: "the clock and that of the home's file system are " + off.Round(time.Second).String() + " apart",
		Cure: "the home belongs on a local disk; else let both machines set their clocks by NTP",
	}}
}

// checkDisk looks for room wherever the home reaches.
func (d *doctor) checkDisk(context.Context) []finding {
	var list []finding
	var seen []string
	dirs := []string{d.layout.Home}
	for _, ws := range d.withFolders() {
		dirs = append(dirs, d.layout.Requests(ws), d.layout.Responses(ws), d.layout.Pendings(ws), d.layout.Decisions(ws),
			d.layout.Receipts(ws), d.layout.Records(ws))
	}
	left := ""
	for _, dir := range append(dirs, d.layout.Audit()) {
		room, err := ipc.FreeSpaceOf(dir)
		if err != nil {
			continue // the check of the folders says why
		}
		if slices.Contains(seen, room.Device) {
			continue
		}
		seen = append(seen, room.Device)
		if left == "" {
			left = fmt.Sprintf("%d MiB left", room.Bytes>>20)
			if room.Counted {
				left += fmt.Sprintf(", and room for %d files", room.Files)
			}
		}
		list = append(list, d.short(dir, room)...)
	}
	list = append(list, foundAll(warning, "", d.layout.CheckOneDisk(d.withFolders()...)...)...)
	return orWell(list, "%s, on %s", left, oneLine(strings.Join(seen, ", ")))
}

// short is milder to the requests, which may have a small disk of their own to
// keep a flood from filling ours.
func (d *doctor) short(dir string, room ipc.FreeSpace) []finding {
	own := slices.ContainsFunc(d.names, func(ws string) bool { return dir == d.layout.Requests(ws) })
	if own && !room.ReadOnly && room.Bytes > 0 {
		return nil
	}
	if err := room.Refuses(); err != nil {
		return foundAll(serious, "", err)
	}
	return foundAll(warning, "", room.Low())
}

const syncRounds = 20

// checkSync asks what the system says of the disk, and then the disk.
func (d *doctor) checkSync(context.Context) []finding {
	m, err := ipc.MountOf(d.layout.Home)
	if err != nil {
		return []finding{{Severity: worthKnowing, What: "this system does not say how the disk is mounted: " + oneLine(err.Error())}}
	}
	loses := m.LosesData()
	if m.Memory() {
		loses = approval.WithHint(loses, approval.Hint(loses)+": permesso --home DIR")
	}
	list := slices.Concat(foundAll(serious, "", loses), foundAll(warning, "", m.Warnings()))
	measured := ""
	if !d.quick {
		list = append(list, d.scratch(func(dir string) []finding {
			median, err := ipc.SyncTime(dir, syncRounds)
			if err != nil {
				return foundAll(serious, "", err)
			}
			measured = fmt.Sprintf(": an fsync takes %s (median of %d)", median.Round(time.Microsecond), syncRounds)
			return foundAll(warning, "", m.TooFast(median))
		})...)
	}
	return orWell(list, "%s on %s%s", m.Type, oneLine(m.Point), measured)
}

// checkAgents looks for what no gate holds back.
func (d *doctor) checkAgents(context.Context) []finding {
	agents, err := findAgents(d.uid)
	if errors.Is(err, errors.ErrUnsupported) {
		return []finding{{Severity: worthKnowing, What: "processes cannot be looked at on this system", Cure: "make sure that agents run under another user, or in a container"}}
	}
	if err != nil {
		return foundAll(worthKnowing, "", err)
	}
	var list []finding
	for _, p := range agents {
		list = append(list, finding{
			Severity: warning, What: fmt.Sprintf("%s (process %d) runs as %s, outside any sandbox: it could approve itself", p.name, p.pid, p.as),
			Cure: "give it a container (permesso mounts), or let a system user permesso run the gate, or set local_decisions = false",
		})
	}
	return orWell(list, "no known agent runs as the gate's own user outside a sandbox")
}
