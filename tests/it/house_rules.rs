//! `tidy` by itself, as `make check` builds it: the house rules alone, without the programs that the stories are about.

mod tidy;
