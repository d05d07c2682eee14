"""What to cite for the methods of a table, as BibTeX."""

from __future__ import annotations

from collections.abc import Iterable

from fedhk._version import __version__

BIBTEX = f"""@misc{{sinaga2026fedhk,
  author = {{Sinaga, Kristina P.}},
  title = {{Personalized Federated Heat-Kernel Enhanced Multi-View Clustering via Advanced Tensor Decomposition
           Techniques}},
  year = {{2026}}
}}

@software{{fedhk,
  author = {{{{The FedHK developers}}}},
  title = {{{{FedHK: personalized federated multi-view clustering}}}},
  version = {{{__version__}}},
  year = {{2026}}
}}
"""

# Works of other authors, by the name of their method in a table.
OTHERS = {
    "balanced k-means": r"""@article{lloyd1982least,
  author = {Lloyd, Stuart P.},
  title = {Least Squares Quantization in {PCM}},
  journal = {IEEE Transactions on Information Theory},
  volume = {28},
  number = {2},
  pages = {129--137},
  year = {1982}
}

@inproceedings{arthur2007kmeans,
  author = {Arthur, David and Vassilvitskii, Sergei},
  title = {k-means++: The Advantages of Careful Seeding},
  booktitle = {Proceedings of the 18th Annual ACM-SIAM Symposium on Discrete Algorithms},
  pages = {1027--1035},
  year = {2007}
}
""",
    "spectral clustering": r"""@inproceedings{ng2001spectral,
  author = {Ng, Andrew Y. and Jordan, Michael I. and Weiss, Yair},
  title = {On Spectral Clustering: Analysis and an Algorithm},
  booktitle = {Advances in Neural Information Processing Systems 14},
  year = {2001}
}
""",
    "k-FED": r"""@inproceedings{dennis2021kfed,
  author = {Dennis, Don Kurian and Li, Tian and Smith, Virginia},
  title = {Heterogeneity for the Win: One-Shot Federated Clustering},
  booktitle = {Proceedings of the 38th International Conference on Machine Learning},
  year = {2021}
}
""",
    "federated fuzzy c-means": r"""@book{bezdek1981fuzzy,
  author = {Bezdek, James C.},
  title = {Pattern Recognition with Fuzzy Objective Function Algorithms},
  publisher = {Plenum Press},
  year = {1981}
}

@inproceedings{corcuera2021federated,
  author = {Corcuera B{\'a}rcena, Jos{\'e} Luis and Marcelloni, Francesco and Renda, Alessandro and Bechini, Alessio and
            Ducange, Pietro},
  title = {A Federated Fuzzy c-means Clustering Algorithm},
  booktitle = {WILF 2021, CEUR Workshop Proceedings 3074},
  year = {2021}
}
""",
}


def cite(methods: Iterable[str]) -> str:
    """Write the entries of FedHK and of the methods of other authors that are among these."""
    return "\n".join([BIBTEX, *(OTHERS[name] for name in methods if name in OTHERS)])
