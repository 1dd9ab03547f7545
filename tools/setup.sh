# What ./trireme does the first time: Debian packages, pinned parts, CMake. Read by that script, whose names it uses:
# root, build, cache, parts, needed, wanted, say, fail.

set_up() {  # WHAT-TO-REMEMBER
  local version
  version=$(sed -n 's/^project(Trireme VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
  [[ -f $build/.configured ]] || say "trireme $version · first run: setting up (once)"
  install_packages
  [[ -d $parts ]] || bring_parts
  configure "$1"
}

install_packages() {
  local log=$build/packages.log present package missing=() missing_needed=()
  [[ $(cat "$build/.packages" 2>/dev/null) != "$needed $wanted" ]] || return 0
  if ! command -v dpkg-query >/dev/null; then
    say "  packages    this is not Debian: the equivalents of these must be there: $needed"
    printf '%s' "$needed $wanted" >"$build/.packages"
    return 0
  fi
  # dpkg-query fails when it does not know one of the names: that is an answer, too.
  # shellcheck disable=SC2086
  present=" $(dpkg-query -W -f '${db:Status-Status}:${Package} ' $needed $wanted 2>/dev/null || true)"
  for package in $needed; do
    [[ $present == *" installed:$package "* ]] || missing_needed+=("$package")
  done
  missing=("${missing_needed[@]}")
  for package in $wanted; do
    [[ $present == *" installed:$package "* ]] || missing+=("$package")
  done

  if ((${#missing[@]} > 0)); then
    local command="apt-get install -y --no-install-recommends ${missing[*]}"
    if ((EUID == 0)); then
      say "  packages    installing ${#missing[@]} Debian packages: ${missing[*]}"
      if ! { DEBIAN_FRONTEND=noninteractive apt-get -q update &&
        DEBIAN_FRONTEND=noninteractive $command; } >"$log" 2>&1 </dev/null 9>&-; then
        tail -n 5 "$log" >&2
        fail "apt-get could not install the packages (all it said: $log)" \
          "check the network and the free space (df -h /), then run this again; or by hand: $command"
      fi
    elif ((${#missing_needed[@]} > 0)); then
      fail "${#missing[@]} Debian packages are missing. Install them, then run this again:" \
        "sudo $command" \
        "(Open MPI, mold, ccache, clang-format and the like are for tests and speed; the build works without them)"
    else
      say "  packages    going on without these, which tests and faster builds use: sudo $command"
    fi
  fi
  printf '%s' "$needed $wanted" >"$build/.packages"
}

# Downloads the wheels, checks their hashes, unpacks them beside their final place and renames: the folder is there
# whole or not at all.
bring_parts() {
  local machine python work=$parts.tmp wheel free_kb platform failed= log=$build/parts.log
  machine=$(uname -m)
  [[ $machine == x86_64 ]] || fail "libtorch is pinned for x86_64 only; this machine is $machine" \
    "without libtorch the communication library still builds: cmake --preset release -DTRIREME_TORCH=OFF && ninja -C build/release"
  python=$(find_pip)

  mkdir -p "$cache" || fail "cannot make the folder $cache" "give another one: TRIREME_CACHE=FOLDER ./trireme …"
  exec 8>"$cache/.lock"
  flock -n 8 || { say "  libtorch    waiting for another trireme, which is bringing it"; flock 8; }
  if [[ -d $parts ]]; then
    exec 8>&-
    return 0
  fi

  rm -rf "$work"
  free_kb=$(df -Pk "$cache" | awk 'NR == 2 { print $4 }')
  ((free_kb > 2000000)) || fail "bringing libtorch needs 2 GB free in $cache; there are $((free_kb / 1000)) MB" \
    "free some, or give another folder: TRIREME_CACHE=FOLDER ./trireme …"
  say "  libtorch    $(sed -n 's/^torch==\([0-9.]*\).*/\1/p' "$root/cmake/parts.txt"):" \
    "$(sed -n 's/^# size: //p' "$root/cmake/parts.txt") in $cache"
  mkdir "$work"

  local arguments=(download --no-deps --only-binary=:all: --require-hashes --no-cache-dir --disable-pip-version-check
    --python-version 311 --implementation cp --abi cp311 --abi none -r "$root/cmake/parts.txt" -d "$work/wheels")
  for platform in manylinux_2_28 manylinux_2_25 manylinux_2_17 manylinux2014; do
    arguments+=(--platform "${platform}_x86_64")
  done
  if [[ -t 2 ]]; then  # pip's own progress bar
    TMPDIR=$work "$python" -m pip "${arguments[@]}" 2> >(tee "$log" >&2) >&2 8>&- 9>&- || failed=1
  else
    TMPDIR=$work "$python" -m pip "${arguments[@]}" 2>&1 8>&- 9>&- | tee "$log" | show_pip || failed=1
  fi
  if [[ -n $failed ]]; then
    rm -rf "$work"
    explain_pip "$log"
  fi

  say "  libtorch    unpacking"
  for wheel in "$work"/wheels/*.whl; do
    local members=()
    [[ $wheel != */torch-* ]] || members=('torch/include/*' 'torch/lib/*' torch/version.py 'torch-*.dist-info/*')
    if ! unzip -q -o "$wheel" "${members[@]}" -d "$work" >"$log" 2>&1 </dev/null 8>&- 9>&-; then
      tail -n 3 "$log" >&2
      rm -rf "$work"
      fail "cannot unpack ${wheel##*/} in $cache" "is the disk full? df -h $cache; another folder: TRIREME_CACHE=FOLDER ./trireme …"
    fi
    rm "$wheel"
  done
  mv "$work"/highsbox-*.data/purelib/highsbox "$work/highsbox"  # where an installer would put it
  rm -rf "$work/wheels" "$work"/highsbox-*.data
  mv -T "$work" "$parts"
  exec 8>&-
}

find_pip() {
  local python found=
  for python in python3 /usr/bin/python3; do
    command -v "$python" >/dev/null || continue
    found=1
    if "$python" -m pip --version >/dev/null 2>&1; then
      printf '%s' "$python"
      return 0
    fi
  done
  [[ -n $found ]] || fail "there is no python3, which fetches libtorch (the program itself does not use it)" \
    "sudo apt-get install python3 python3-pip"
  fail "python3 has no pip, which fetches libtorch" "sudo apt-get install python3-pip"
}

# One line a part: its name and size.
show_pip() {
  local line
  while IFS= read -r line; do
    case $line in
      *Downloading\ *)
        line=${line#*Downloading }
        line=${line##*/}
        say "              $line"
        ;;
    esac
  done
}

explain_pip() {  # LOG
  local log=$1
  grep -v '^ *Looking in\|^$' "$log" | tail -n 4 | cut -c 1-300 >&2
  if grep -q 'No space left' "$log"; then
    fail "the disk filled up while downloading libtorch into $cache" \
      "free 2 GB, or give another folder: TRIREME_CACHE=FOLDER ./trireme …"
  elif grep -q 'DO NOT MATCH THE HASHES' "$log"; then
    fail "a downloaded part is not the one that is pinned in cmake/parts.txt" \
      "a proxy may have damaged it: run this again; if it stays, do not use that package index"
  elif grep -q 'CERTIFICATE_VERIFY_FAILED' "$log"; then
    fail "the package index showed a certificate that this machine does not trust" \
      "behind a proxy that re-signs traffic, give pip the proxy's certificate: PIP_CERT=FILE.pem ./trireme …"
  elif grep -q 'No matching distribution\|Could not find a version' "$log" && ! grep -qi 'connection\|timed out\|resolution' "$log"; then
    fail "the package index does not have the pinned parts" "see what pip uses: python3 -m pip config list"
  fi
  fail "libtorch could not be downloaded (all that pip said: $log)" \
    "check the network (and HTTPS_PROXY, if there is a proxy), then run this again: it starts where nothing is half done"
}

configure() {  # WHAT-TO-REMEMBER
  local log=$build/configure.log
  say "  configuring"
  if ! (cd "$root" && cmake --preset release --fresh "-DTRIREME_PARTS=$parts") >"$log" 2>&1 9>&-; then
    cat "$log" >&2
    fail "CMake could not configure the build; its words are above"
  fi
  printf '%s' "$1" >"$build/.configured"
}
