//go:build race

package audit_test

// raceDetector makes every step some ten times as dear.
const raceDetector = true
