#include <cstdio>

int main() {
  std::puts("trine 0.1.0");
  return 0;
}
