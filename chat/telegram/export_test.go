package telegram

// DisableLimits turns rate limits and digests off, so that tests are fast.
func DisableLimits(c *Channel) { c.noLimits = true }

// DisableRateLimits turns rate limits off and leaves digests on.
func DisableRateLimits(c *Channel) { c.noLimits, c.floodLimit = true, true }
