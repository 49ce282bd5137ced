package store

// Unwritten is an error after which nothing is written, in words for people. It replaces the
// text of the error that it wraps.
type Unwritten struct {
	Text string // "nothing was decided: no space left on the disk of HOME"
	Err  error
}

func (e *Unwritten) Error() string { return e.Text }

// Unwrap returns the error of the file system.
func (e *Unwritten) Unwrap() error { return e.Err }
