# What ./trireme does the first time: Debian packages, pinned parts, CMake. Read by that script, whose names it uses:
# root, build, cache, parts, torch_parts, the lists of packages, say, fail.

set_up() {  # LEVEL WHAT-TO-REMEMBER
  local level=$1 version
  version=$(sed -n 's/^project(Trireme VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
  [[ -f $build/.configured ]] || say "trireme $version · first run: setting up (once)"
  if ((level == 3)); then
    needed+=" $needed_by_tests"
    wanted+=" $wanted_by_tests"
  fi
  install_packages
  [[ -d $parts ]] || bring_parts HiGHS "$root/cmake/parts.txt" "$parts"
  ((level == 1)) || [[ -d $torch_parts ]] || bring_parts libtorch "$root/cmake/torch_parts.txt" "$torch_parts"
  configure "$level" "$2"
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

# Downloads the wheels of a list, checks their hashes, unpacks them beside their final place and renames: the folder is
# there whole or not at all.
bring_parts() {  # NAME LIST FOLDER
  local name=$1 list=$2 folder=$3
  local machine python work=$folder.tmp wheel free_kb platform failed= log=$build/parts.log size
  size=$(sed -n 's/^# size: //p' "$list")
  machine=$(uname -m)
  [[ $machine == x86_64 ]] || fail "$name is pinned for x86_64 only; this machine is $machine" \
    "without it the communication library still builds: cmake --preset release -DTRIREME_TORCH=OFF && ninja -C build/release"
  python=$(find_pip)

  mkdir -p "$cache" || fail "cannot make the folder $cache" "give another one: TRIREME_CACHE=FOLDER ./trireme …"
  exec 8>"$cache/.lock"
  flock -n 8 || { say "  $(printf %-11s "$name") waiting for another trireme, which is bringing it"; flock 8; }
  if [[ -d $folder ]]; then
    exec 8>&-
    return 0
  fi

  rm -rf "$work"
  free_kb=$(df -Pk "$cache" | awk 'NR == 2 { print $4 }')
  local needed_kb=100000
  [[ $name != libtorch ]] || needed_kb=2000000
  ((free_kb > needed_kb)) ||
    fail "bringing $name needs $((needed_kb / 1000)) MB free in $cache; there are $((free_kb / 1000)) MB" \
      "free some, or give another folder: TRIREME_CACHE=FOLDER ./trireme …"
  say "  $(printf %-11s "$name") $(sed -n '/==/{s/^[a-z]*==\([0-9.]*\).*/\1/p;q}' "$list"): $size in $cache"
  mkdir "$work"

  local arguments=(download --no-deps --only-binary=:all: --require-hashes --no-cache-dir --disable-pip-version-check
    --python-version 311 --implementation cp --abi cp311 --abi none -r "$list" -d "$work/wheels")
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
    explain_pip "$name" "$log"
  fi

  for wheel in "$work"/wheels/*.whl; do
    local members=()
    [[ ${wheel##*/} != torch-* ]] || members=('torch/include/*' 'torch/lib/*' torch/version.py 'torch-*.dist-info/*')
    if ! unzip -q -o "$wheel" "${members[@]}" -d "$work" >"$log" 2>&1 </dev/null 8>&- 9>&-; then
      tail -n 3 "$log" >&2
      rm -rf "$work"
      fail "cannot unpack ${wheel##*/} in $cache" "is the disk full? df -h $cache; another folder: TRIREME_CACHE=FOLDER ./trireme …"
    fi
    rm "$wheel"
  done
  local data
  for data in "$work"/*.data; do  # where an installer would put it
    [[ ! -d $data/purelib ]] || mv "$data"/purelib/* "$work"
  done
  rm -rf "$work/wheels" "$work"/*.data
  mv -T "$work" "$folder"
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
  [[ -n $found ]] || fail "there is no python3, which fetches parts of the build (the program itself does not use it)" \
    "sudo apt-get install python3 python3-pip"
  fail "python3 has no pip, which fetches parts of the build" "sudo apt-get install python3-pip"
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

explain_pip() {  # NAME LOG
  local name=$1 log=$2
  grep -v '^ *Looking in\|^$' "$log" | tail -n 4 | cut -c 1-300 >&2
  if grep -q 'No space left' "$log"; then
    fail "the disk filled up while downloading $name into $cache" \
      "free some, or give another folder: TRIREME_CACHE=FOLDER ./trireme …"
  elif grep -q 'DO NOT MATCH THE HASHES' "$log"; then
    fail "a downloaded part is not the one that is pinned in cmake/parts.txt or cmake/torch_parts.txt" \
      "a proxy may have damaged it: run this again; if it stays, do not use that package index"
  elif grep -q 'CERTIFICATE_VERIFY_FAILED' "$log"; then
    fail "the package index showed a certificate that this machine does not trust" \
      "behind a proxy that re-signs traffic, give pip the proxy's certificate: PIP_CERT=FILE.pem ./trireme …"
  elif grep -q 'No matching distribution\|Could not find a version' "$log" && ! grep -qi 'connection\|timed out\|resolution' "$log"; then
    fail "the package index does not have the pinned parts" "see what pip uses: python3 -m pip config list"
  fi
  fail "$name could not be downloaded (all that pip said: $log)" \
    "check the network (and HTTPS_PROXY, if there is a proxy), then run this again: it starts where nothing is half done"
}

configure() {  # LEVEL WHAT-TO-REMEMBER
  local log=$build/configure.log torch=ON
  (($1 > 1)) || torch=OFF
  say "  configuring"
  if ! (cd "$root" && cmake --preset release --fresh "-DTRIREME_PARTS=$parts" "-DTRIREME_TORCH_PARTS=$torch_parts" \
    -DTRIREME_TORCH=$torch) >"$log" 2>&1 9>&-; then
    cat "$log" >&2
    fail "CMake could not configure the build; its words are above"
  fi
  printf '%s\n%s\n' "$1" "$2" >"$build/.configured"
}
