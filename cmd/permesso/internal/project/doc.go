// Package project holds tests about the whole source tree: which words it uses.
// It contains no code.
package project
