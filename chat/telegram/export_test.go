package telegram

// DisableLimits turns rate limits off, so that tests are fast.
func DisableLimits(c *Adapter) { c.noLimits = true }
