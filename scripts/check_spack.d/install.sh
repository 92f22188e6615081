# SPDX-License-Identifier: MIT
# Installs Kformer with Spack as a user would, from the last commit of the checkout, and uses what was installed.

spack_() { spack --config-scope "$scope" "$@"; }

prepare_install() {
  take_last_commit
  {
    printf 'config:\n  install_tree:\n    root: %s/store\n  build_stage: [%s/stage]\n' "$scope" "$scope"
    printf '  test_stage: %s/test\n' "$scope"
    [[ -z ${KFORMER_JOBS:-} ]] || printf '  build_jobs: %s\n' "$KFORMER_JOBS"
  } >"$scope/config.yaml"
  [[ $externals != debian ]] || take_externals
}

# The recipe names the public repository; git takes a copy of this checkout instead, whose main is the last commit.
take_last_commit() {
  local n=${GIT_CONFIG_COUNT:-0}
  revision=$(git -C "$root" rev-parse HEAD) || return
  rm -rf "$scope/kformer.git"
  git clone --quiet --bare "$root" "$scope/kformer.git" &&
    git -C "$scope/kformer.git" update-ref refs/heads/main "$revision"
  export GIT_CONFIG_COUNT=$((n + 1)) "GIT_CONFIG_KEY_$n=url.file://$scope/kformer.git.insteadOf" \
    "GIT_CONFIG_VALUE_$n=https://github.com/kformer/kformer.git"
  echo "commit          ${revision::8}, spack $(spack --version | awk '{ print $1 }')"
  not_reached "https://github.com/kformer/kformer.git: the last commit of this checkout stands in"
}

take_externals() {
  local kokkos=${KOKKOS_PREFIX:-${KFORMER_STATE:-$root/.quickstart}/kokkos-openmp/usr}
  [[ -d $kokkos ]] || kokkos=/usr
  check "externals of Debian" write_externals "$kokkos" || return
  not_reached "what Spack makes of Kokkos, HDF5, OpenBLAS and the other dependencies: Debian's packages stand in"
  not_reached "+cuda, +rocm, +kokkos_kernels: Debian has no Kokkos of these kinds"
}

write_externals() {
  python3 -m venv --without-pip --system-site-packages "$scope/venv" &&
    "$root/spack/debian_externals" --kokkos "$1" --venv "$scope/venv" >"$scope/packages.yaml"
}

prove_installs() {
  local spec
  for spec in "${specs[@]}"; do
    check "install $spec" spack_ install "$spec" || continue
    check "test run $spec" tests_pass kformer
    if spack_ find kformer+drivers >/dev/null 2>&1; then
      check "revision $spec" names_revision
      check "deck of each kind, $spec" with_loaded kformer validate
      check "results, $spec" with_loaded kformer run_layer
    else
      not_reached "revision, decks and results of $spec: it has no drivers"
    fi
    check "uninstall $spec" uninstalls kformer
  done
  check "install py-kformer-results" spack_ install py-kformer-results || return
  check "test run py-kformer-results" tests_pass py-kformer-results
  if [[ -e $scope/layer.h5 ]]; then
    check "results read in Python" with_loaded py-kformer-results read_results
  else
    not_reached "results read in Python: no driver has written any"
  fi
  check "uninstall py-kformer-results" uninstalls py-kformer-results
}

# tests_pass PACKAGE: Spack counts a package without tests as no failure.
tests_pass() {
  local output
  output=$(spack_ test run "$1" 2>&1) && grep -q '1 passed of 1 spec' <<<"$output" && return
  echo "$output"
  return 1
}

# with_loaded PACKAGE COMMAND...: as after `spack load`.
with_loaded() (
  cd "$scope" && eval "$(spack_ load --sh "$1")" && "${@:2}"
)

names_revision() {
  local version
  version=$(with_loaded kformer kformer-layer --version) && echo "$version" &&
    grep -qF "${revision::8}" <<<"$version"
}

installed() { echo "$(dirname "$(command -v kformer-layer)")/../share/kformer/$1"; }

validate() { "$(installed jobs/validate.sh)"; }

run_layer() { kformer-layer "$(installed inputs/smoke/layer.toml)" -o layer.h5 --overwrite; }

read_results() { kformer-check layer.h5 && kformer-report layer.h5 && [[ -s layer.html ]]; }

uninstalls() {
  local prefix
  prefix=$(spack_ location -i "$1") && spack_ uninstall --yes-to-all "$1" && [[ ! -e $prefix ]]
}
