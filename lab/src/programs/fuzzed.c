/* What AFL++ runs: reads its input and compares a little of it, so that the runs themselves cost
 * nearly all. */
#include <stdio.h>
#include <string.h>

int main(void) {
    char text[64] = "";
    size_t length = fread(text, 1, sizeof text - 1, stdin);
    if (length > 4 && memcmp(text, "seed", 4) == 0)
        puts("seed");
    if (length > 8 && text[5] == 'x')
        puts(text[6] == 'y' ? "xy" : "x");
    return 0;
}
