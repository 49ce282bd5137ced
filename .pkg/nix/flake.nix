# NOT RUN: this has not been built yet. It is text to start from; a report of what is wrong with it is welcome.
#
#	nix run 'github:permesso-dev/permesso?dir=.pkg/nix' -- version
#
# The first build stops and prints the hash that belongs in vendorHash.
{
  description = "permesso, an approval gate for AI agents";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" ];
      each = f: nixpkgs.lib.genAttrs systems (system: f nixpkgs.legacyPackages.${system});
    in
    {
      packages = each (pkgs: {
        default = pkgs.buildGoModule {
          pname = "permesso";
          version = self.shortRev or "devel";
          src = self.sourceInfo.outPath;
          vendorHash = pkgs.lib.fakeHash;
          subPackages = [ "cmd/permesso" ];
          env.CGO_ENABLED = 0;
          ldflags = [ "-s" "-w" "-X main.version=${self.shortRev or "devel"}" "-X main.commit=${self.rev or ""}" ];
          # The tests need programs and name spaces that a sandbox of nix lacks.
          doCheck = false;
          nativeBuildInputs = [ pkgs.installShellFiles ];
          postInstall = ''
            installShellCompletion --cmd permesso \
              --bash <($out/bin/permesso completion bash) \
              --zsh <($out/bin/permesso completion zsh) \
              --fish <($out/bin/permesso completion fish)
          '';
          meta = {
            description = "Approval gate for AI agents";
            homepage = "https://github.com/permesso-dev/permesso";
            license = pkgs.lib.licenses.asl20;
            mainProgram = "permesso";
          };
        };
      });
    };
}
