# NOT RUN: this has not been installed yet. make dist fills in the version and the checksums, as dist/permesso.rb.
# On macOS it has the commands of an agent; the gate itself needs Linux.
class Permesso < Formula
  desc "Approval gate for AI agents"
  homepage "https://github.com/permesso-dev/permesso"
  version "@VERSION@"
  license "Apache-2.0"

  on_macos do
    on_arm do
      url "https://github.com/permesso-dev/permesso/releases/download/@TAG@/@NAME_darwin_arm64@"
      sha256 "@SHA_darwin_arm64@"
    end
    on_intel do
      url "https://github.com/permesso-dev/permesso/releases/download/@TAG@/@NAME_darwin_amd64@"
      sha256 "@SHA_darwin_amd64@"
    end
  end

  on_linux do
    on_arm do
      url "https://github.com/permesso-dev/permesso/releases/download/@TAG@/@NAME_linux_arm64@"
      sha256 "@SHA_linux_arm64@"
    end
    on_intel do
      url "https://github.com/permesso-dev/permesso/releases/download/@TAG@/@NAME_linux_amd64@"
      sha256 "@SHA_linux_amd64@"
    end
  end

  def install
    bin.install "bin/permesso"
    man1.install Dir["share/man/man1/*"]
    man5.install Dir["share/man/man5/*"]
    bash_completion.install "share/bash-completion/completions/permesso"
    zsh_completion.install "share/zsh/site-functions/_permesso"
    fish_completion.install "share/fish/vendor_completions.d/permesso.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/permesso --version")
  end
end
