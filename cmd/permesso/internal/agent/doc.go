// Package agent has the commands that an agent runs: request, wait, cancel, and the check of a receipt. They need no
// home and no daemon on this machine, so they build for every system.
package agent
