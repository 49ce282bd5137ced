package ipc

import _ "embed"

// ProgramsManual is how to write a program, for an agent's prompt.
//
//go:embed PROGRAMS.md
var ProgramsManual string
