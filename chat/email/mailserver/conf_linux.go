package mailserver

// passwordHash is Password as crypt(3) keeps it.
const passwordHash = "$6$permesso$KFruc8McYroYolW5qZ6mpkGvdfay5I14kiipsbA9my0gYr.Lm5JlKKtAvP0aQPykVbkjgITZ0Pgrfo./LUFPd1"

// smtpdConf is OpenSMTPD's. Strangers may deliver to the village only; who has
// logged in, too: no mail ever leaves it.
const smtpdConf = `
pki village cert "{{.Dir}}/cert.pem"
pki village key "{{.Dir}}/key.pem"
table logins file:{{.Dir}}/logins
table everybody { "@" = "nobody" }
table later { "later@human.test" }
table never { "never@human.test" }
filter later phase rcpt-to match rcpt-to <later> reject "451 4.7.1 Greylisted, come back later"
filter never phase rcpt-to match rcpt-to <never> reject "550 5.1.1 No such user here"
filter both chain { later, never }
listen on 127.0.0.1 port {{port .SMTP}} tls-require pki village auth <logins> hostname mx.gate.test filter both
listen on 127.0.0.1 port {{port .SMTPS}} smtps pki village auth <logins> hostname mx.gate.test filter both
listen on 127.0.0.1 port {{port .MX}} hostname mx.gate.test filter both
action box lmtp "{{.LMTP}}" rcpt-to virtual <everybody>
match from any for domain { "gate.test", "human.test", "elsewhere.test" } action box
`

// dovecotConf is Dovecot's (2.3), for a master that is not root.
const dovecotConf = `
base_dir = {{.Dir}}/base
state_dir = {{.Dir}}/state
log_path = /dev/stderr
protocols = imap lmtp
listen = 127.0.0.1
default_internal_user = nobody
default_internal_group = nogroup
default_login_user = nobody
first_valid_uid = 1
auth_failure_delay = 0
mail_location = maildir:{{.Dir}}/boxes/%u
recipient_delimiter = +
ssl = required
ssl_cert = <{{.Dir}}/cert.pem
ssl_key = <{{.Dir}}/key-dovecot.pem
passdb {
  driver = passwd-file
  args = scheme=PLAIN {{.Dir}}/passwords
}
userdb {
  driver = static
  args = uid=nobody gid=nogroup home={{.Dir}}/boxes/%u allow_all_users=yes
}
service imap-login {
  chroot =
  inet_listener imap {
    port = {{port .IMAP}}
  }
  inet_listener imaps {
    port = {{port .IMAPS}}
  }
}
service anvil {
  chroot =
}
service stats {
  chroot =
}
service lmtp {
  inet_listener lmtp {
    address = 127.0.0.1
    port = {{port .LMTP}}
  }
}
`
