"""What paper 001 says of its nine applications in numbers; its figures have more, as pictures."""

from __future__ import annotations

# Its text beside figure 1, by what more time than natively: paravirtual, and hardware-assisted.
SLOWER = {
    "gmake": ("12 %, 18 % by 32", "13 %, 36 % by 32"),
    "dbench": ("59 %, 11 % by 32", "18 %, 26 % by 32"),
    "histogram": ("24 %, 382 % by 32", "21 %, 345 % by 32"),
    "wordcount": ("6 %, 717 % by 32", "34 %, 1,088 % by 32"),
    "linear regression": ("164 % by 4, 741 % by 8", "at most 46 %, by 8"),
    "compress": ("below 3 %", "14 %, 25 % by 32"),
    "XML-validation": ("7 %, 180 % by 32", "20 %, 196 % by 32"),
    "dedup": ("19 %, 371 % by 32", "16 %, 63 % by 32"),
    "streamcluster": ("22 %, 1,432 % by 32", "14 %, 434 % by 32"),
}
# Its text beside figures 9 and 10, by remedy: geometric mean and range of how much faster.
FASTER_PARAVIRTUAL = {
    "idle": "3.47 (1.13 to 8.14)",
    "iTLB": "1.17 and 1.08, of histogram and linear regression",
    "all": "2.33 (1 to 8.44)",
}
FASTER_ASSISTED = {
    "vtime": "1.26 (1.09 to 1.44)",
    "idle": "1.39 (0.97 to 2.48)",
    "cm": "1.04 (1.02 to 1.08)",
    "all": "1.65 (1.20 to 3.78)",
}
# Table 2: percent of cycles in handle_pmt_io, by 8 processors and by 32, each in Xen and in iXen.
EMULATED_TIME = {
    "gmake": (57.47, 0.70, 32.56, 0.97),
    "dbench": (31.45, 0.88, 9.93, 0.37),
    "histogram": (43.27, 1.64, 36.44, 0.63),
    "wordcount": (30.93, 1.00, 55.24, 1.75),
    "linear regression": (7.13, 0.82, 19.49, 0.01),
    "compress": (26.55, 0.47, 4.06, 0.06),
    "XML-validation": (22.46, 0.54, 13.14, 0.36),
    "dedup": (70.96, 13.28, 71.69, 8.73),
    "streamcluster": (43.27, 9.26, 36.44, 36.44),
}
