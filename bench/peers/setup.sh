#!/usr/bin/env bash
# setup.sh: llama.cpp's benchmark programs and its server (without its web page), built natively for this machine under build/peers/. Does nothing when they
# are there. The source is vendor/llama.cpp of the pinned source distribution in requirements.txt.
#   build/peers/plain/    what -march=native gives, without the AMX unit: the repacked AVX-512 or AVX2 kernels
#   build/peers/amx/      the same with it, only on a machine that has AMX; which one is faster depends on the work
# JOBS sets the number of compilers at a time.
set -Eeuo pipefail
cd "$(dirname "$0")/../.."
here=bench/peers
out=build/peers
programs=(llama-bench llama-batched-bench llama-server)
jobs=${JOBS:-$(nproc)}

# Native code is for one kind of processor: another one, or another version, starts over.
flags=$(sed -n '/^flags/{s/^[^:]*: //p;q}' /proc/cpuinfo)
stamp=$(cat "$here/requirements.txt" "$here/setup.sh" "$here/amx_gcc.h" - <<<"$flags $(c++ --version | head -n 1)" | sha256sum | cut -d' ' -f1)
if [ "$(cat "$out/stamp" 2>/dev/null || true)" = "$stamp" ]; then
  exit 0
fi
rm -rf "$out"
mkdir -p "$out/download" "$out/source"
trap 'echo "error: the peer was not built; see $out/*.log" >&2' ERR

echo "==> fetching llama.cpp"
python3 -m venv "$out/venv"
"$out/venv/bin/pip" --disable-pip-version-check download --quiet --no-deps --no-binary llama-cpp-python --require-hashes \
  -r "$here/requirements.txt" -d "$out/download" >"$out/download.log" 2>&1
tar -xzf "$out"/download/llama_cpp_python-*.tar.gz -C "$out/source" --strip-components=1
source=$out/source/vendor/llama.cpp

# build TREE FLAGS CXX_FLAGS TARGET...: shared libraries that find each other in their own folder.
build() {
  local tree=$out/tree-$1 log=$out/$1.log
  cmake -S "$source" -B "$tree" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS="$2" -DCMAKE_CXX_FLAGS="$2 $3" \
    -DGGML_NATIVE=ON -DGGML_CPU_REPACK=ON -DGGML_OPENMP=ON -DGGML_LLAMAFILE=ON -DBUILD_SHARED_LIBS=ON \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=ON -DLLAMA_BUILD_APP=OFF \
    -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF \
    -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON "-DCMAKE_INSTALL_RPATH=\$ORIGIN" >"$log" 2>&1
  ninja -C "$tree" -j "$jobs" "${@:4}" >>"$log" 2>&1
}

# collect VARIANT TREE: the programs with their libraries, the kernels from TREE. One library of llama.cpp holds them.
collect() {
  mkdir -p "$out/$1"
  for program in "${programs[@]}"; do cp "$out/tree-base/bin/$program" "$out/$1/"; done
  cp -a "$out"/tree-base/bin/*.so* "$out/$1/"
  cp -a "$out/tree-$2"/bin/libggml-cpu.so* "$out/$1/"
}

echo "==> building llama.cpp for this processor (several minutes, log in $out/base.log)"
build base "" "" "${programs[@]}"
if grep -qw amx_int8 <<<"$flags"; then
  echo "==> building its kernels without and with AMX"
  build plain "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16" "" ggml-cpu
  build amx "" "-include $PWD/$here/amx_gcc.h" ggml-cpu
  collect plain plain
  collect amx amx
else
  collect plain base
fi
sed -n 's/^Version: //p' "$out/source/PKG-INFO" | head -n 1 >"$out/version"
rm -rf "$out"/tree-* "$out/source" "$out/download" "$out/venv"
echo "$stamp" >"$out/stamp"
echo "==> llama.cpp is in $out"
