package mailserver

// smtpdConf is the configuration of OpenSMTPD. No email leaves the machine. TLS is off:
// OpenSMTPD of Debian 12 aborts every handshake, because its OpenSSL is too new.
const smtpdConf = `
table everybody { "@" = "nobody" }
table later { "later@human.test" }
table never { "never@human.test" }
filter later phase rcpt-to match rcpt-to <later> reject "451 4.7.1 Greylisted, come back later"
filter never phase rcpt-to match rcpt-to <never> reject "550 5.1.1 No such user here"
filter both chain { later, never }
listen on 127.0.0.1 port {{port .MX}} hostname mx.gate.test filter both
action box lmtp "{{.LMTP}}" rcpt-to virtual <everybody>
match from any for domain { "gate.test", "human.test", "elsewhere.test" } action box
`

// dovecotConf is the configuration of Dovecot 2.3, for a master that is not root.
const dovecotConf = `
base_dir = {{.Dir}}/base
state_dir = {{.Dir}}/state
log_path = /dev/stderr
protocols = imap lmtp submission
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
ssl_key = <{{.Dir}}/key.pem
hostname = mx.gate.test
submission_relay_host = 127.0.0.1
submission_relay_port = {{port .MX}}
submission_relay_trusted = no
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
service submission-login {
  chroot =
  inet_listener submission {
    port = {{port .SMTP}}
  }
  inet_listener submissions {
    port = {{port .SMTPS}}
    ssl = yes
  }
}
# Without this, a login after a wrong password waits four seconds.
service anvil {
  chroot =
  unix_listener anvil-auth-penalty {
    mode = 0
  }
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
