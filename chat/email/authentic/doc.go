// Package authentic proves who wrote an email. A DMARC pass counts that the receiving mail
// server states in Authentication-Results (RFC 8601), and so does a DKIM signature (RFC
// 6376, RFC 8463) that is aligned with the From domain. See [Authenticator].
package authentic
