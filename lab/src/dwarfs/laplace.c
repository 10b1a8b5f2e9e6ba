/* The arithmetic of Laplace: see laplace.h. */
#include "laplace.h"

struct part inner_rows(size_t n, int number, int of) {
    struct part p = part_of(n > 2 ? n - 2 : 0, number, of);
    return (struct part){p.from + 1, p.to + 1};
}

void start_rows(double *rows, size_t n, struct part p) {
    for (size_t i = p.from; i < p.to; i++)
        for (size_t j = 0; j < n; j++)
            rows[(i - p.from) * n + j] = i == 0;
}

double jacobi(const double *old, double *restrict next, size_t n, size_t count) {
    double change = 0;
    for (size_t i = 0; i < count; i++) {
        const double *row = old + i * n;
        double *to = next + i * n;
        for (size_t j = 1; j + 1 < n; j++) {
            to[j] = 0.25 * (row[j - 1] + row[j + 1] + (row - n)[j] + row[n + j]);
            change += (to[j] - row[j]) * (to[j] - row[j]);
        }
    }
    return change;
}

double laplace_answer(const double *mesh, size_t n, double change) {
    return checksum(mesh, n * n) + change;
}
