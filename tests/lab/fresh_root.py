"""From an empty Debian 12 to a first streamed token, by the wheel alone: what each step takes.

    make wheel
    sudo python tests/lab fresh-root --root FOLDER --wheel dist/pdmuxd-*.whl [--by uv] [--as-image]

FOLDER is a root that `debootstrap --variant=minbase` made, or is made so now; a copy of it is used and
removed. The copy gets this machine's name servers and certificates, and nothing else. Ports are free ones.
`--as-image` adds what Debian's own container images set: dpkg does not wait for the disk after each file.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

DEBIAN = "http://deb.debian.org/debian"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
THEIR_PLACE = "/etc/certificates-of-the-machine.crt"
"""Where the root has them: the usual file is written anew when Debian's package comes."""
HOW = {
    "pip": """
step "pip installs the wheel"
env/bin/pip install --quiet pdmuxd-*.whl
serve="env/bin/pdmuxd serve --first-run"
""",
    "uv": """
step "pip installs uv"
env/bin/pip install --quiet uv
serve="env/bin/uvx --quiet --from $(ls pdmuxd-*.whl) pdmuxd serve --first-run"
""",
}
SCRIPT = """
set -e
mount -t proc proc /proc
cd /root
step() {{ echo "@@ $EPOCHREALTIME $1"; }}
step "apt-get update"
apt-get update -qq
step "apt-get install python3-venv curl"
apt-get install -y -qq --no-install-recommends python3-venv curl >/dev/null 2>&1
step "python3 -m venv"
python3 -m venv env
{how}
step "serve --first-run, until it is ready{also}"
$serve > serve.log 2>&1 &
until grep -q "^  curl " serve.log; do kill -0 $! || {{ cat serve.log; exit 1; }}; sleep 0.1; done
step "the printed line, to its first token"
eval "$(sed -n 's/^  curl /curl -sS /p' serve.log)" 2>/dev/null | sed '/"content"/q'
step "end"
kill $!; wait $! || true
"""
TRUSTED = ("PIP_CERT", "SSL_CERT_FILE", "CURL_CA_BUNDLE")
"""The variables by which pip, uv and curl find the certificates."""


def main() -> None:
    """Copy the root, run the script in it, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--root", type=Path, required=True, help="a root of Debian 12, or where to make one")
    parser.add_argument("--wheel", type=Path, required=True)
    parser.add_argument("--by", choices=tuple(HOW), default="pip", help="what installs the wheel")
    parser.add_argument("--as-image", action="store_true", help="set dpkg as Debian's container images do")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("chroot needs root")
    if not options.root.exists():
        made = ["debootstrap", "--variant=minbase", "bookworm", str(options.root), DEBIAN]
        subprocess.run(made, check=True)
    with tempfile.TemporaryDirectory(dir=options.root.absolute().parent) as name:
        root = Path(name) / "root"
        subprocess.run(["cp", "-a", options.root, root], check=True)
        shutil.copy("/etc/resolv.conf", root / "etc" / "resolv.conf")
        shutil.copy(CERTIFICATES, root / THEIR_PLACE.lstrip("/"))
        shutil.copy(options.wheel, root / "root")
        if options.as_image:
            (root / "etc" / "dpkg" / "dpkg.cfg.d" / "docker-apt-speedup").write_text("force-unsafe-io\n")
        given = [f"{variable}={THEIR_PLACE}" for variable in TRUSTED]
        given += ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"]
        given += ["PDMUXD_DATA__PORT=0", "PDMUXD_ADMIN__PORT=0"]
        # A mount namespace of its own: what is mounted there is gone with the last process.
        command = ["unshare", "--mount", "chroot", str(root), "env", "-i", *given, "bash", "-c"]
        script = SCRIPT.format(how=HOW[options.by], also=", by uvx" if options.by == "uv" else "")
        done = subprocess.run([*command, script], stdout=subprocess.PIPE, text=True, check=False)
    marks = [(float(at), what) for at, what in re.findall(r"^@@ ([\d.]+) (.+)$", done.stdout, re.MULTILINE)]
    if done.returncode or not marks or marks[-1][1] != "end" or '"content"' not in done.stdout:
        sys.exit(f"exit code {done.returncode}\n{done.stdout}")
    print("| step | seconds |\n|---|---:|")
    for (at, what), (after, _) in itertools.pairwise(marks):
        print(f"| {what} | {after - at:.1f} |")
    print(f"| all | {marks[-1][0] - marks[0][0]:.1f} |")
    used = os.times()
    computed_s = used.children_user + used.children_system
    print(f"{computed_s:.0f} s of CPU time, load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
