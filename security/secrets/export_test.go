package secrets

import (
	"fmt"
	"regexp"
)

// CheckRules compiles all expressions and returns the first error.
func CheckRules() error {
	set, err := loadRules()
	if err != nil {
		return err
	}
	for _, r := range set.Rules {
		for _, x := range append(append([]string{r.Regex}, r.Allow...), r.AllowMatch...) {
			if _, err := regexp.Compile(x); err != nil {
				return fmt.Errorf("rule %s: %w", r.ID, err)
			}
		}
		if len(r.Keywords) == 0 {
			return fmt.Errorf("rule %s has no keywords", r.ID)
		}
	}
	return nil
}
