/* DGEMM as the textbook has it, by three loops: what tuning begins with. */
#include <stddef.h>
#include <stdlib.h>

void dgemm_(const char *transa, const char *transb, const int *m, const int *n, const int *k,
            const double *alpha, const double *a, const int *lda, const double *b, const int *ldb,
            const double *beta, double *c, const int *ldc) {
    if (*transa != 'N' || *transb != 'N')
        abort();
    for (ptrdiff_t i = 0; i < *m; i++)
        for (ptrdiff_t j = 0; j < *n; j++) {
            double sum = 0;
            for (ptrdiff_t l = 0; l < *k; l++)
                sum += a[i + l * *lda] * b[l + j * *ldb];
            double *to = &c[i + j * *ldc];
            *to = *alpha * sum + (*beta == 0 ? 0 : *beta * *to);
        }
}
