package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/permesso-dev/permesso/approval/event"
	"github.com/permesso-dev/permesso/approval/gate"
	"github.com/permesso-dev/permesso/chat"
	"github.com/permesso-dev/permesso/chat/telegram"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/console"
	"github.com/permesso-dev/permesso/cmd/permesso/internal/home"
	"github.com/permesso-dev/permesso/ipc"
	"github.com/permesso-dev/permesso/security/audit"
	"github.com/permesso-dev/permesso/watcher"
)

// checkDaemon checks whether a daemon runs, which process it is, and whether
// it has read the current configuration.
func (d *Doctor) checkDaemon(ctx context.Context) []Finding {
	// Do not create the lock file: the daemon's user could not open ours.
	if _, err := os.Lstat(d.Layout.Lock()); err != nil {
		return notice("the daemon is not running and never ran here", "permesso serve")
	}
	running, err := d.Served()
	if err != nil {
		return findingsOf(SeverityError, "", err)
	}
	if d.running = running; !running {
		return notice("the daemon is not running: decisions take effect when it starts", "permesso serve")
	}
	if d.Greet != nil {
		if err := d.Greet(ctx, d.app, d.Home); err != nil {
			return findingsOf(SeverityError, "", err)
		}
	}
	p, known := findDaemon(d.Layout.Lock())
	list := append(d.reportedHealth(), d.staleConfig(p.started)...)
	if !known {
		return orOK(list, "running; its process is not visible from here")
	}
	d.Daemon = p.pid
	if p.replaced {
		list = append(list, warning(fmt.Sprintf("process %d runs a program file that was replaced since", p.pid),
			"restart permesso serve")...)
	}
	if p.ignoresFsync {
		list = append(list, warning(fmt.Sprintf("process %d has libeatmydata loaded or in LD_PRELOAD: its fsyncs may be ignored", p.pid),
			"start permesso serve without it")...)
	}
	return orOK(list, "running, process %d since %s", p.pid, p.started.Local().Format(time.DateTime))
}

// reloadDelay is how long a daemon may take to reload the configuration.
const reloadDelay = 5 * time.Second

// staleConfig reports a configuration that changed after the daemon last read it,
// according to the audit log.
func (d *Doctor) staleConfig(started time.Time) []Finding {
	info, err := os.Stat(d.file)
	if err != nil {
		return nil // no file, or checkConfig reports it
	}
	read := started
	entries, err := audit.Last(d.FS, d.Layout.Audit(), 1000)
	if err != nil {
		entries = nil // checkAudit reports it
	}
	for _, e := range entries {
		if e.Event == event.Started || e.Event == event.Configured {
			read = e.Time
		}
	}
	if read.IsZero() || info.ModTime().Before(read.Add(reloadDelay)) {
		return nil
	}
	return warning("the daemon has not reloaded the configuration since its change at "+info.ModTime().Local().Format(time.DateTime),
		"check its log for a configuration error, which keeps the old configuration; or restart permesso serve")
}

// health is the daemon's own report in run/health.json; none if no daemon runs.
func (d *Doctor) health() (h home.HealthReport, ok bool) {
	b, err := os.ReadFile(d.Layout.Health())
	return h, err == nil && json.Unmarshal(b, &h) == nil
}

// reportedHealth lists what the daemon itself reports.
func (d *Doctor) reportedHealth() (list []Finding) {
	h, ok := d.health()
	if !ok {
		return nil
	}
	for _, p := range h.Issues {
		list = append(list, warning("the daemon reports: "+console.OneLine(p.What),
			cmp.Or(console.OneLine(p.Hint), "see permesso status and the daemon's log"))...)
	}
	for _, p := range h.Notes {
		list = append(list, notice("the daemon notes: "+console.OneLine(p.What), console.OneLine(p.Hint))...)
	}
	if h.Status == home.HealthPaused {
		list = append(list, notice("the daemon is paused, at least for one workspace: nothing runs there",
			"permesso resume")...)
	}
	if h.Version != "" && h.Version != d.app.Version {
		list = append(list, warning("the daemon runs version "+console.OneLine(h.Version)+", this program is "+d.app.Version,
			"restart permesso serve")...)
	}
	return list
}

// scratch calls use with a temporary folder on the home's file system. It is
// in run/, which a starting daemon empties; if that happened, it tries again.
func (d *Doctor) scratch(use func(dir string) []Finding) (list []Finding) {
	for range 2 {
		dir, err := os.MkdirTemp(d.Layout.Run(), "doctor-")
		if err != nil {
			if d.unwritable {
				return notice("not checked: it needs a home that can be written", "")
			}
			d.unwritable = true
			return failure("cannot write to the home: "+console.OneLine(err.Error()), console.Hints(console.HintFor(err), "see the findings on folders"))
		}
		list = use(dir)
		_, gone := os.Lstat(dir)
		if err := os.RemoveAll(dir); err != nil {
			list = append(list, findingOf(SeverityWarning, "", err))
		}
		if gone == nil {
			break
		}
	}
	return list
}

// folderCount is how many folders the daemon watches.
func (d *Doctor) folderCount() int { return 1 + 4*len(d.names) }

func (d *Doctor) checkInotify(context.Context) []Finding {
	list := findingsOf(SeverityWarning, "", watcher.CheckLimits(d.folderCount())...)
	for _, ws := range d.withFolders {
		list = append(list, findingsOf(SeverityWarning, ws, watcher.CheckFileSystem(d.Layout.Requests(ws)))...)
	}
	list = append(list, d.scratch(func(dir string) []Finding { return findingsOf(SeverityWarning, "", watcher.TryInotify(dir)) })...)
	return orOK(list, "events arrive; the limits allow %d folders", d.folderCount())
}

const (
	maxDrift = 2 * time.Second // between our clock and the file system's
	maxAhead = time.Minute     // of an audit entry ahead of our clock
)

// checkClock compares the clock, which deadlines depend on, with the year, the
// log and the file system.
func (d *Doctor) checkClock(context.Context) []Finding {
	var list []Finding
	now := d.Now
	if now.Year() < 2026 || now.Year() > 2100 {
		list = append(list, failure("the clock shows "+now.Format(time.DateOnly)+": receipts and deadlines would be wrong",
			"set the clock; then timedatectl set-ntp true")...)
	}
	if entries, err := audit.Last(d.FS, d.Layout.Audit(), 1); err == nil && len(entries) == 1 && entries[0].Time.Sub(now) > maxAhead {
		list = append(list, failure(fmt.Sprintf("the clock was set back: the log's newest entry is of %s, now is %s", entries[0].Time.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339)),
			"set the clock; expired requests stay expired, pending ones would expire too late")...)
	}
	list = append(list, d.scratch(checkDrift)...)
	if unsynchronized() {
		list = append(list, notice("system clock is not synchronized (NTP)",
			"timedatectl set-ntp true, or install chrony")...)
	}
	return orOK(list, "%s, same as the file system's clock", now.Format(time.RFC3339))
}

// checkDrift compares a new file's time with our clock.
func checkDrift(dir string) []Finding {
	before := time.Now()
	name := filepath.Join(dir, "time")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		return findingsOf(SeverityError, "", err)
	}
	info, err := os.Stat(name)
	if err != nil {
		return findingsOf(SeverityError, "", err)
	}
	return compareClocks(before, info.ModTime())
}

func compareClocks(ours, disks time.Time) []Finding {
	off := disks.Sub(ours).Abs()
	if off <= maxDrift {
		return nil
	}
	return warning("the system clock and the home's file system differ by "+off.Round(time.Second).String(),
		"move the home to a local disk, or synchronize both machines by NTP")
}

// checkDisk checks the free space of every file system that the home uses.
func (d *Doctor) checkDisk(context.Context) []Finding {
	var list []Finding
	var seen []string
	dirs := []string{d.Layout.Home}
	for _, ws := range d.withFolders {
		dirs = append(dirs, d.Layout.Requests(ws), d.Layout.Responses(ws), d.Layout.Pendings(ws), d.Layout.Decisions(ws),
			d.Layout.Receipts(ws), d.Layout.Records(ws))
	}
	left := ""
	for _, dir := range append(dirs, d.Layout.Audit()) {
		free, err := ipc.FreeSpaceOf(dir)
		if err != nil {
			continue // checkFolders reports it
		}
		if slices.Contains(seen, free.Device) {
			continue
		}
		seen = append(seen, free.Device)
		if left == "" {
			left = fmt.Sprintf("%d MiB free", free.Bytes>>20)
			if free.Counted {
				left += fmt.Sprintf(", %d inodes free", free.Files)
			}
		}
		list = append(list, d.lowSpace(dir, free)...)
	}
	list = append(list, d.usedBudgets()...)
	list = append(list, findingsOf(SeverityWarning, "", d.Layout.CheckOneDisk(d.withFolders...)...)...)
	list = append(list, d.scratch(func(string) []Finding { return nil })...)
	return orOK(list, "%s, on %s", left, console.OneLine(strings.Join(seen, ", ")))
}

// usedBudgets are the workspaces that have used most of their storage budget.
func (d *Doctor) usedBudgets() (list []Finding) {
	for _, ws := range d.withFolders {
		budget := d.Config.Workspaces[ws].Limits.WithDefaults().Stored
		if used := sizeOf(d.Layout.Requests(ws)); used >= budget {
			list = append(list, in(ws, warning(fmt.Sprintf("%s takes %d MiB, which no limit holds: the folder is the agent's", console.OneLine(d.Layout.Requests(ws)), used>>20),
				"remove what is no request; a file system of its own, or a project quota, holds an agent that fills the disk"))...)
		}
		used, err := d.Store.Stored(context.Background(), ws)
		if err != nil {
			continue // checkFolders reports it
		}
		st := gate.Storage{Used: used, Budget: budget}
		if st.Low = gate.IsLow(st); st.Low {
			list = append(list, in(ws, warning(st.String(), console.StorageHint))...)
		}
	}
	return list
}

// sizeOf is what a folder takes on the disk with all that is in it, in bytes.
func sizeOf(dir string) (bytes int64) {
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // what is gone takes nothing
		}
		if info, err := entry.Info(); err == nil {
			if file, ok := info.Sys().(*syscall.Stat_t); ok {
				bytes += file.Blocks * 512
			}
		}
		return nil
	})
	return bytes
}

// lowSpace ignores low space of the requests' folder if it has a file system of
// its own, which may be small on purpose.
func (d *Doctor) lowSpace(dir string, free ipc.FreeSpace) []Finding {
	own := slices.ContainsFunc(d.names, func(ws string) bool { return dir == d.Layout.Requests(ws) })
	if own && !free.ReadOnly && free.Bytes > 0 {
		return nil
	}
	if err := free.Critical(); err != nil {
		return findingsOf(SeverityError, "", err)
	}
	return findingsOf(SeverityWarning, "", free.Low())
}

const syncRounds = 20

// checkSync checks the mount options, then measures fsync.
func (d *Doctor) checkSync(context.Context) []Finding {
	m, err := ipc.MountOf(d.Layout.Home)
	if err != nil {
		return notice("cannot read the mount options: "+console.OneLine(err.Error()), "")
	}
	list := slices.Concat(findingsOf(SeverityError, "", m.NotLocal(), m.LosesData()),
		findingsOf(SeverityWarning, "", m.Warnings()), findingsOf(SeverityInfo, "", ipc.SyncErrorsLost()))
	measured := ""
	if !d.Quick {
		list = append(list, d.scratch(func(dir string) []Finding {
			text, wrong := measureSyncs(m, dir)
			measured = text
			return wrong
		})...)
	}
	list = orOK(list, "%s on %s%s", m.Type, console.OneLine(m.Point), measured)
	return append(list, findingsOf(SeverityInfo, "", m.OverwriteNeedsSpace())...)
}

// measureSyncs measures both kinds of syncs.
func measureSyncs(m ipc.Mount, dir string) (text string, list []Finding) {
	file, err := ipc.SyncTime(dir, syncRounds)
	if err != nil {
		return "", findingsOf(SeverityError, "", err)
	}
	journal, err := ipc.JournalTime(dir, syncRounds)
	if err != nil {
		return "", findingsOf(SeverityError, "", err)
	}
	text = fmt.Sprintf(": a commit to the journal takes %s, an fsync of a file %s (medians of %d)",
		journal.Round(time.Microsecond), file.Round(time.Microsecond), syncRounds)
	return text, findingsOf(SeverityWarning, "", m.TooFast(min(file, journal)))
}

// checkAgents looks for agents that can bypass the gate.
func (d *Doctor) checkAgents(context.Context) []Finding {
	agents, err := findAgents(d.UID)
	if errors.Is(err, errors.ErrUnsupported) {
		return notice("cannot list processes on this system", "run agents as another user, or in a container")
	}
	if err != nil {
		return findingsOf(SeverityInfo, "", err)
	}
	var list []Finding
	for _, p := range agents {
		list = append(list, warning(fmt.Sprintf("%s (process %d) runs as %s outside a sandbox: it could approve its own requests", p.name, p.pid, p.as),
			"run it in a container (permesso mounts), or run the daemon as a system user, or set local_decisions = false")...)
	}
	return orOK(list, "no known agent runs as the daemon's user outside a sandbox")
}

const telegramTimeout = 10 * time.Second

// checkTelegram checks the bot's token and its group privacy setting.
func (d *Doctor) checkTelegram(ctx context.Context) []Finding {
	cfg := d.Config.Telegram
	if cfg == nil {
		return []Finding{okFinding("Telegram is not configured")}
	}
	if cfg.TokenFile == "" && d.app.Env(home.TelegramToken) == "" {
		return notice("the bot's token is in the daemon's environment, which doctor cannot read", "")
	}
	token, err := home.BotToken(cfg, d.app.Env)
	if err != nil {
		return failure(console.OneLine(err.Error()), "permesso telegram setup")
	}
	ctx, stop := context.WithTimeout(ctx, telegramTimeout)
	defer stop()
	bot, err := (&telegram.Setup{Token: token, ServerURL: cfg.ServerURL}).Me(ctx)
	switch {
	case errors.Is(err, telegram.ErrToken):
		return failure(err.Error(), "get a token from @BotFather with /token")
	case err != nil:
		return warning(console.OneLine(err.Error()), "check the network and server_url")
	}
	list := []Finding{okFinding("Telegram accepts the bot @%s", chat.Escape(bot.Username))}
	for _, ws := range d.names {
		if d.Config.TelegramChats[ws].ChatID < 0 && !bot.ReadsAllMessages {
			list = append(list, in(ws, notice(home.PrivacyHint(bot.Username), ""))...)
		}
	}
	return list
}
