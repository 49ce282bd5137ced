//go:build race

package audit_test

// raceDetector makes tests about ten times slower.
const raceDetector = true
